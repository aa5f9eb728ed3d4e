"""Spillway's agents: what runs.

The pure cores, their drivers (Faust and the simulator), the broker, the supervisor, the command line.
"""

if not __name__.startswith("spillway."):
    raise ImportError(f"{__name__!r} is part of Spillway: import it as 'spillway.{__name__}'")
