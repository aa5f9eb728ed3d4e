"""Whether coding shortens the tail, measured against a shadow: the same stage had its workers done nothing else.

Where a dispatch shares its workers with the lane, an extra takes up a worker that a batch may have to wait for. In a
stage whose workers hardly straggle, or that is full, the waits are longer than what is saved. So every batch is timed
twice: as it was, to its own worker's answer or the one that was made before, and in the shadow, which starts batches in
the order of their starts on as many workers, each for as long as it took its own. Of each `SEEN` batches the slowest
hundredth is compared. Coding rests where the shadow's was no slower, for `REST` seconds, twice as long after each trial
that fails again, up to `LONGEST`: a stage that never straggles then spends one part in hundreds on trials.

`now` is in seconds and does not decrease.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from spillway.agents.core.workers import Batch

SEEN: Final = 2_000  # a hundredth of them is enough for a mean
_SLOWEST: Final = 100  # the share, as one in so many
REST: Final = 60.0
LONGEST: Final = 3_600.0
_IDLE: Final = float("-inf")


@dataclass(slots=True)
class _Timed:
    """A batch under way."""

    arrived: float
    settled: float = float("inf")
    seconds: float | None = None  # that its own worker took; below 0: it was lost


class Shadow:
    """The last batches of one coded stage, with coding and without."""

    def __init__(self) -> None:
        self._under_way: deque[_Timed] = deque()
        self._of: dict[Batch, _Timed] = {}
        self._ends: list[float] = []  # of the shadow's workers, a heap
        self._as_it_was: list[float] = []
        self._without: list[float] = []
        self._until = _IDLE  # when coding goes on
        self._rest = REST

    def resting(self, now: float) -> bool:
        return now < self._until

    def started(self, batch: Batch) -> None:
        timed = self._of[batch] = _Timed(batch.requests[-1].arrived)
        self._under_way.append(timed)

    def recovered(self, now: float, batch: Batch) -> None:
        """Record that an answer can be made for a batch whose own worker has not answered."""
        if (timed := self._of.get(batch)) is not None:
            timed.settled = min(timed.settled, now)

    def lost(self, batch: Batch) -> None:
        if (timed := self._of.pop(batch, None)) is not None:
            timed.seconds = -1.0

    def answered(self, now: float, batch: Batch, workers: int) -> None:
        """Take a batch's own answer. `workers`: how many there are, the dispatch's among them."""
        timed = self._of.pop(batch)
        timed.settled = min(timed.settled, now)
        timed.seconds = now - batch.started
        while self._under_way and self._under_way[0].seconds is not None:
            self._compare(self._under_way.popleft(), workers)
        if len(self._without) >= SEEN:
            self._judge(now)

    def _compare(self, timed: _Timed, workers: int) -> None:
        assert timed.seconds is not None  # it is answered or lost
        if timed.seconds < 0:
            return
        while len(self._ends) < workers:
            heapq.heappush(self._ends, _IDLE)
        while len(self._ends) > workers:
            self._ends.remove(max(self._ends))
            heapq.heapify(self._ends)
        ends = max(timed.arrived, self._ends[0]) + timed.seconds
        heapq.heapreplace(self._ends, ends)
        self._as_it_was.append(timed.settled - timed.arrived)
        self._without.append(ends - timed.arrived)

    def _judge(self, now: float) -> None:
        as_it_was, without = (sum(sorted(each)[-SEEN // _SLOWEST :]) for each in (self._as_it_was, self._without))
        self._as_it_was.clear()
        self._without.clear()
        if self.resting(now):
            return
        if as_it_was < without:
            self._rest = REST
        else:
            self._until = now + self._rest
            self._rest = min(2 * self._rest, LONGEST)
