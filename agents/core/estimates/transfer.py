"""The recent hops of messages to one place: from the sender's timestamp into a stage's queue, or through the gate.

They are told as samples, as the batch waits are, and the outlook takes a quantile of the sum along a path. What was
slow during an outage is forgotten within `LENGTH`. That is longer than the time between two probes of a stage that lets
nothing else in (`agents.core.policies.pard`), so that an estimate never starts from nothing there.
"""

from __future__ import annotations

from collections import deque
from typing import Final

LENGTH: Final = 3.0  # seconds that are remembered
_MANY: Final = 1_000
_MOST: Final = 1.0  # seconds: more is a backlog after an outage, or a clock that is off, and no hop that lies ahead


class Transfer:
    """`now` is in seconds and does not decrease."""

    __slots__ = ("_hops",)

    def __init__(self) -> None:
        self._hops: deque[tuple[float, float]] = deque(maxlen=_MANY)  # when it ended, and how long it was

    def hear(self, now: float, seconds: float) -> None:
        self._hops.append((now, min(max(0.0, seconds), _MOST)))

    def samples(self, now: float) -> list[float]:
        hops = self._hops
        while hops and hops[0][0] < now - LENGTH:
            hops.popleft()
        return [seconds for _, seconds in hops]
