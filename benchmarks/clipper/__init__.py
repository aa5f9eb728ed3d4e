"""Clipper's serving layer (section 3.4 of Crankshaw's thesis), measured: `python -m benchmarks clipper`."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Import the command when it is asked for: MLServer's interpreter, which imports a part of this, cannot."""
    if name != "clipper":
        raise AttributeError(name)
    from benchmarks.clipper.command import clipper  # noqa: PLC0415

    return clipper
