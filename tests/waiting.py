"""Waiting for a condition, within a bound that a busy host does not cut short.

A bound ends a wait for what will never come. Its seconds are those in which this machine could work: the host of a
virtual machine may give its processors to others for minutes ("steal" in Linux' /proc/stat; nine tenths were seen), and
what takes 10 s then takes 100. Where nothing is stolen, or the system does not tell, they are seconds of the clock.

What a host takes in other ways (its disk, its caches) is not told at all. So a bound is a net: whoever waits says how
long it takes at most where nothing is in the way, and the net is `_SLACK` times as wide.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")
BROKER_SECONDS = 600.0  # for a broker's start, which counts seconds of the clock: a net, as the suite's own timeout
PATIENT_SECONDS = 600.0  # for a query's SLO or a connection, where an answer must come: these count by the clock, too
_SLACK = 4.0
_LOOK_SECONDS = 1.0  # what was stolen is told in hundredths of a second: of less than this a share says little
_PAUSE_SECONDS = 0.02, 0.2  # at first, and at most: looking costs what it is looked for


class GivenTime:
    """A stopwatch of the seconds that the machine was given, from when it is made."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, times: Callable[[], Any] = psutil.cpu_times
    ) -> None:
        self._clock, self._times = clock, times
        self._looked_at, self._seen = clock(), _wanted(times())
        self._given, self._share = 0.0, 1.0

    @property
    def seconds(self) -> float:
        """So many until now; of the last one it is taken that it was like the one before."""
        now = self._clock()
        if now - self._looked_at >= _LOOK_SECONDS:
            seen = _wanted(self._times())
            ran, stolen = (later - earlier for later, earlier in zip(seen, self._seen, strict=True))
            self._share = ran / (ran + stolen) if ran + stolen > 0 else 1.0
            self._given += (now - self._looked_at) * self._share
            self._looked_at, self._seen = now, seen
        return self._given + (now - self._looked_at) * self._share


class Bound:
    """A net for what takes so many seconds at most, from when it is made."""

    def __init__(self, seconds: float, given: GivenTime | None = None) -> None:
        self._given, self._end = given or GivenTime(), _SLACK * seconds

    @property
    def over(self) -> bool:
        return self._given.seconds >= self._end


def until(
    condition: Callable[[], _T], seconds: float, what: str | Callable[[], str] = "the condition did not come to hold"
) -> _T:
    """Poll until `condition` holds, and return what it gave; fails the test, saying `what`, where `Bound` ends."""
    bound, (pause, most) = Bound(seconds), _PAUSE_SECONDS
    while not (found := condition()):
        if bound.over:
            raise AssertionError(f"{what if isinstance(what, str) else what()}: not within {_SLACK:g} x {seconds:g} s")
        time.sleep(pause)
        pause = min(1.05 * pause, most)
    return found


def gone(pid: int) -> bool:
    """Whether a process has ended, though nobody may have asked how."""
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def _wanted(times: Any) -> tuple[float, float]:
    """Of all processors' time: what was spent working, and what was wanted for it and stolen. Seconds."""
    guest = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # counted in user and nice, too
    stolen = getattr(times, "steal", 0.0)
    return sum(times) - guest - stolen - times.idle - getattr(times, "iowait", 0.0), stolen
