"""Measuring models for profile files, and telling whether a profile still speaks of its model."""
