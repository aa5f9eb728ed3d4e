"""Spillway's topology: what a pipeline is and how it is laid out.

The spec, its validation, its routes, its topics, its profiles.
"""

if not __name__.startswith("spillway."):
    raise ImportError(f"{__name__!r} is part of Spillway: import it as 'spillway.{__name__}'")
