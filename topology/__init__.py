"""Spillway's topology: what a pipeline is and how it is laid out.

The spec, its validation, its routes, its topics, its profiles.
"""
