"""How long messages lately took on their way: what nine in ten of them did not exceed.

Not their mean: what is served at the edge of its deadline (Low Budget First serves there) would be late as often as
not, with all the work on it lost, while a few milliseconds of caution cost nothing that an overload does not take
anyway. Ways vary by more than their mean, as a broker answers in bursts.

Remembered for two seconds: after a moment in which all were slow, everything may look late, and the longer that is
remembered, the longer nothing is let in. Where none came for a second, nothing is known. What was slow during an outage
must not keep out for good what would show that it is over: a stage that lets nothing in brings no messages to those
behind it.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

LENGTH: Final = 2.0  # seconds that are remembered
SILENCE: Final = 1.0  # seconds
COVERED: Final = 0.9
FEW: Final = 50  # ways; of fewer only the median counts, as those of a pipeline that has just begun are slow
_MANY: Final = 1_000
_MOST: Final = 1.0  # seconds: more is a backlog after an outage, or a clock that is off, and no way that lies ahead


class Transfer:
    """The recent ways of messages to one place. `now` is in seconds and does not decrease."""

    __slots__ = ("_ways",)

    def __init__(self) -> None:
        self._ways: deque[tuple[float, float]] = deque(maxlen=_MANY)  # when it ended, and how long it was

    def hear(self, now: float, seconds: float) -> None:
        self._ways.append((now, min(max(0.0, seconds), _MOST)))

    def seconds(self, now: float) -> float:
        ways = self._ways
        if ways and ways[-1][0] < now - SILENCE:
            ways.clear()
        while ways and ways[0][0] < now - LENGTH:
            ways.popleft()
        if not ways:
            return 0.0
        covered = COVERED if len(ways) >= FEW else 0.5
        return sorted(way for _, way in ways)[math.ceil(covered * len(ways)) - 1]
