"""Open-loop loads: when queries are due, what they ask, sending them on time, and counting what became of them."""

from spillway.producers.load.generator import Load, Shot, generated, recorded

__all__ = ["Load", "Shot", "generated", "recorded"]
