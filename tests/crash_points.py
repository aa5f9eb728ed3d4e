"""Makes this process die at a named point of its work (`spillway.agents.run.crash_points`)."""

import os
import signal
from typing import Final

from spillway.agents.run import crash_points
from spillway.lineage.errors import UsageError

_STEPS: Final = ("compute", "capture", "chunks", "outputs", "manifest", "ack", "renewal", "claim", "fence")
NAMES: Final = frozenset({f"{when}-{step}" for when in ("before", "after") for step in _STEPS} | {"amid-chunks"})


def arm(text: str) -> None:
    """Die by SIGKILL, without a handler or flush, on coming to point `NAME`, or `NAME:COUNT` for the COUNTth time.

    An empty text disarms. Raises UsageError for a point that does not exist.
    """
    name, colon, count = text.partition(":")
    if text and name not in NAMES:
        raise UsageError(f"there is no crash point {name!r:.60}: use one of {', '.join(sorted(NAMES))}")
    if colon and not (count.isascii() and count.isdigit() and int(count)):
        raise UsageError(f"{text!r:.60} must be NAME or NAME:COUNT, where the count is 1 or more")
    left = int(count or 1)

    def come_to(point: str) -> None:
        nonlocal left
        left -= point == name
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    crash_points.hook = come_to if text else None
