"""What waits before a stage, as a tuner reckons it: by what has come, and by what its workers can do since they loaded.

Nobody tells a tuner what waits. Workers that are ordered serve after the plan's load time; until then queries pile up.
Times are in seconds, rates in the stage's own queries a second.
"""

from __future__ import annotations


class Backlog:
    """One stage's. It begins with nothing that waits, and all workers ready."""

    def __init__(self, workers: int, throughput: float, load: float) -> None:
        self._throughput, self._load = throughput, load
        self._ready = workers
        self._loading: list[tuple[float, int]] = []  # when they are ready, and how many
        self._waiting = 0.0

    def resize(self, now: float, more: int) -> None:
        """So many workers were ordered, or sent away: those that load first, the last one first."""
        if more > 0:
            self._loading.append((now + self._load, more))
            return
        while more < 0 and self._loading:
            when, count = self._loading.pop()
            if count + more > 0:
                self._loading.append((when, count + more))
            more = min(0, more + count)
        self._ready += more

    def passed(self, begin: float, end: float, queries: float) -> None:
        """So many queries came in between."""
        self._ready += sum(count for when, count in self._loading if when <= end)
        self._loading = [each for each in self._loading if each[0] > end]
        self._waiting = max(0.0, self._waiting + queries - self._ready * self._throughput * (end - begin))

    def forget(self) -> None:
        """It is not known what came, so nothing is taken to wait."""
        self._waiting = 0.0

    def when_loaded(self, now: float, rate: float) -> float:
        """What will wait when a worker is ready that is ordered now, at such a rate."""
        waiting, ready, at = self._waiting, self._ready, now
        for when, count in [*self._loading, (now + self._load, 0)]:
            until = max(at, min(when, now + self._load))
            waiting = max(0.0, waiting + (rate - ready * self._throughput) * (until - at))
            ready, at = ready + count, until
        return waiting
