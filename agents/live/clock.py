"""The stage's clock: unix seconds that never run backwards; and one that counts what a host slept.

Deadlines are unix times and durations must be monotonic; the core takes a single `now` for both. So: the wall clock
where it moves forward, followed in small steps, over the monotonic clock.
"""

from __future__ import annotations

import time

_FOLLOW = 0.01  # of the wall clock's lead or lag is taken over at each correction
_EVERY = 0.5  # seconds between two corrections
_JUMP = 1.0  # seconds: a wall clock that leads by more was set, and is followed at once


def since_boot() -> float:
    """Seconds of a clock that never goes back and that goes on while the host is suspended, where there is one.

    Linux' monotonic clock stands still then. Whoever has to know how long he was away, by what others have done
    meanwhile, goes by this one.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Clock:
    """The clock of a process, and of all in it that takes the time (`spillway.lineage.ports.Clock`)."""

    def __init__(self) -> None:
        at = time.monotonic()
        self._offset = time.time() - at
        self._follow_at = at + _EVERY

    def now(self) -> float:
        at = time.monotonic()
        if at >= self._follow_at:
            self._follow(at)
        return at + self._offset

    __call__ = now

    @staticmethod
    def monotonic() -> float:
        return time.monotonic()

    def _follow(self, at: float) -> None:
        """Take over a part of the wall clock's drift: a lead at once if it is large, a lag never faster than 1 %."""
        self._follow_at = at + _EVERY
        drift = time.time() - (at + self._offset)
        self._offset += drift if drift > _JUMP else max(drift * _FOLLOW, -0.001)
