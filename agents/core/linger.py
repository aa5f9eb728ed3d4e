"""How long to wait, with something in hand to send, for more to go with it: by how busy sending has been of late.

A sending that costs the same however much it carries (a transaction of the gate) is worth a wait while sendings follow
one another, and not while they are rare: what comes first after a quiet time goes at once. The wait grows with the
square of the share of time that is busy, so that where half of it is not, hardly anything waits.
"""

from __future__ import annotations

import math
from typing import Final

_MEMORY: Final = 0.25  # seconds over which the share of busy time is taken


class Linger:
    """Says how long after one sending the next may begin. Times are in seconds, of any monotonic clock."""

    def __init__(self, most: float) -> None:
        """`most`: seconds between the end of a sending and the next one where sendings fill all time."""
        self._most = most
        self._busy = 0.0  # share of the time, in which something was in hand or being sent
        self._ended = -math.inf
        self._began: float | None = None  # since when something has been in hand

    def pause(self, now: float) -> float:
        """How much longer to gather, with something in hand."""
        if self._began is None:
            self._began = now
        return max(0.0, self._ended + self._busy**2 * self._most - now)

    def sent(self, now: float) -> None:
        """Take note that what was in hand has been sent."""
        cycle = now - self._ended
        if cycle > 0 and self._began is not None:
            newest = (now - self._began) / cycle
            self._busy += -math.expm1(-cycle / _MEMORY) * (newest - self._busy)
        self._ended = now
        self._began = None
