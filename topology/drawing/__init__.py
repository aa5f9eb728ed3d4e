"""Pipelines as text and as DOT."""

from spillway.topology.drawing.pictures import dot, text

__all__ = ["dot", "text"]
