"""Offsets that lie mostly one behind the other, as runs: what is finished, or covered, above a position.

A branch of a join that comes back leaves tens of thousands of finished offsets above those that still wait for it, and
every version says which they are. As runs these are a few. Adding is O(1), looking O(runs).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
