"""The stage's clock: unix seconds that never run backwards; and one that counts what a host slept.

Deadlines are unix times and durations must be monotonic; the core takes a single `now` for both. So: the wall clock
where it moves forward, followed in small steps, over the monotonic clock.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


# The one timer of a driver: it rings when the core next has something to do by itself.
#
# A moment that is asked for later than the one that is set is dropped: the core is asked anew when the alarm has rung.


class Alarm:
    """An alarm of the running event loop; `ring` is called on it."""

    def __init__(self, ring: Callable[[], object]) -> None:
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def within(self, seconds: float) -> None:
        """Ring in so many seconds at the latest."""
        due = self._loop.time() + max(0.0, seconds)
        if self._timer is not None:
            if self._timer.when() <= due:
                return  # it rings early enough
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._due)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        self._timer = None
        self._ring()


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
        return time.monotonic() + self._offset

    def follow(self) -> None:
        """Take over a part of the wall clock's drift: a lead at once if it is large, a lag never faster than 1 %."""
        drift = time.time() - self()
        self._offset += drift if drift > _JUMP else max(drift * _FOLLOW, -0.001)
