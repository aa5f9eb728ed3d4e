"""Which input offset may be committed, when records are finished in any order.

Invariants, per partition:

* `position` is the offset after the last record of the longest run of finished records from the start: every record
  that was taken below it is finished, the record at `lowest_unfinished` is not. It never goes back.
* Offsets are taken in increasing order; gaps are normal (compaction, markers of transactions), so the position after
  a finished run is the last finished offset plus one, never "the next one taken".
* A record that was taken once is not taken again (`taken` says so), however often the consumer hands it out.
* A record is finished when `done` was called once for it, and once more for every `hold`.

Every operation is O(1) amortised; memory is one entry per record between `position` and the last one taken.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


# Offsets that lie mostly one behind the other, as runs: what is finished, or covered, above a position.
#
# A branch of a join that comes back leaves tens of thousands of finished offsets above those that still wait for it,
# and every version says which they are. As runs these are a few. Adding is O(1), looking O(runs).

Run = tuple[int, int]  # offsets from the first to before the second


class Runs:
    """A set of offsets that grows one by one, and shrinks by whole runs from its front."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: dict[int, int] = {}  # each run's end by its start
        self._ends: dict[int, int] = {}  # and the other way round

    def add(self, offset: int) -> None:
        start = self._ends.pop(offset, offset)
        end = self._starts.pop(offset + 1, offset + 1)
        self._starts[start], self._ends[end] = end, start

    def pop(self, start: int) -> int | None:
        """Remove the run that begins there; give its end, or None where none begins."""
        end = self._starts.pop(start, None)
        if end is not None:
            del self._ends[end]
        return end

    def pairs(self) -> tuple[Run, ...]:
        """The runs, in order; no two of them touch."""
        return tuple(sorted(self._starts.items()))


def union(runs: Iterable[Run], least: int) -> tuple[Run, ...]:
    """Bring runs into order, cut them at `least`, and join those that overlap or touch."""
    joined: list[Run] = []
    for start, end in sorted(runs):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        elif end > least:
            joined.append((max(start, least), end))
    return tuple(joined)


def contains(runs: Sequence[Run], offset: int) -> bool:
    """Whether an offset is in one of the runs, which are in order."""
    at = bisect_right(runs, offset, key=lambda run: run[0]) - 1
    return at >= 0 and offset < runs[at][1]


class PartitionOffsets:
    """One partition's taken and finished offsets."""

    def __init__(self, position: int) -> None:
        self.position = position
        self._last = position - 1
        self._open: deque[int] = deque()  # taken, at or above position, in order
        self._finished: set[int] = set()  # the finished ones among them; never the first
        self._runs = Runs()  # the same
        self._holds: dict[int, int] = {}  # how often `done` is still to be called before the call that finishes

    def taken(self, offset: int) -> bool:
        """Note that a record was taken. False: it was before, or lies below the start; leave it alone."""
        if offset <= self._last:
            return False
        self._last = offset
        self._open.append(offset)
        return True

    def hold(self, offset: int) -> None:
        self._holds[offset] = self._holds.get(offset, 0) + 1

    def done(self, offset: int) -> None:
        """Note that a taken record is finished: all that it led to is acknowledged."""
        if self._holds and offset in self._holds:
            self._holds[offset] -= 1
            if not self._holds[offset]:
                del self._holds[offset]
            return
        pending = self._open
        if not pending or offset < pending[0] or offset > self._last or offset in self._finished:
            raise ValueError(f"offset {offset} is not in progress")
        if offset != pending[0]:
            self._finished.add(offset)
            self._runs.add(offset)
            return
        pending.popleft()
        finished = self._finished
        while pending and pending[0] in finished:
            self._runs.pop(pending[0])
            offset = pending.popleft()
            finished.remove(offset)
        self.position = offset + 1

    @property
    def held(self) -> int:
        return len(self._open)

    @property
    def covered(self) -> tuple[Run, ...]:
        return self._runs.pairs()

    @property
    def unfinished(self) -> int:
        return len(self._open) - len(self._finished)

    @property
    def lowest_unfinished(self) -> int | None:
        """The offset that holds `position` where it is; None if nothing does."""
        return self._open[0] if self._open else None
