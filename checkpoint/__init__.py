"""Spillway's checkpoint: what survives a crash.

Which input may be forgotten, what was already taken, what may be released.
"""

if not __name__.startswith("spillway."):
    raise ImportError(f"{__name__!r} is part of Spillway: import it as 'spillway.{__name__}'")
