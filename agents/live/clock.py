"""The stage's clock: unix seconds that never run backwards; and one that counts what a host slept.

Deadlines are unix times and durations must be monotonic; the core takes a single `now` for both. So: the wall clock
where it moves forward, followed in small steps, over the monotonic clock.
"""

from __future__ import annotations

import time

_FOLLOW = 0.01  # of the wall clock's lead or lag is taken over at each correction
_JUMP = 1.0  # seconds: a wall clock that leads by more was set, and is followed at once


def since_boot() -> float:
    """Seconds of a clock that never goes back and that goes on while the host is suspended, where there is one.

    Linux' monotonic clock stands still then. Whoever has to know how long he was away, by what others have done
    meanwhile, goes by this one.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Clock:
    """Call it for the time; call `follow` now and then so that it keeps to the wall clock."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def __call__(self) -> float:
        """Return unix seconds."""
        return time.monotonic() + self._offset

    def follow(self) -> None:
        """Take over a part of the wall clock's drift: a lead at once if it is large, a lag never faster than 1 %."""
        drift = time.time() - self()
        self._offset += drift if drift > _JUMP else max(drift * _FOLLOW, -0.001)
