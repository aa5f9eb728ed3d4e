"""Clipper's serving layer (section 3.4 of Crankshaw's thesis), measured: `python -m benchmarks clipper`."""

from benchmarks.clipper.command import clipper

__all__ = ["clipper"]
