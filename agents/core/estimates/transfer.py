"""How long messages lately took on their way, from sums that only grow."""

from __future__ import annotations

from typing import Final

_WEIGHT: Final = 0.5  # of what is new
_MOST: Final = 1.0  # seconds: more is a backlog after an outage, or a clock that is off, and no way that lies ahead


class Transfer:
    """The mean of the times since the last look, smoothed. `seconds` is 0 at first, and stays where none came."""

    __slots__ = ("_count", "_total", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self._total = 0.0
        self._count = 0

    def hear(self, total: float, count: int) -> None:
        """Take what all messages so far took together (seconds), and how many they were."""
        new = count - self._count
        if new > 0:
            mean = min(max(0.0, (total - self._total) / new), _MOST)
            self.seconds = mean if not self._count else self.seconds + _WEIGHT * (mean - self.seconds)
        self._total, self._count = total, count
