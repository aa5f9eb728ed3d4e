"""Pipelines as text and as DOT."""
