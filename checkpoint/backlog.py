"""Complete versions of one shard that are not durable yet, and what each of them waits for.

An entry stands for the manifests up to its version, since the entry before. Invariants:

* A version becomes durable with the first entry at or above it, and entries do so in order: a later version contains
  the earlier ones, so it rests on what they rest on too.
* A manifest that asks for nothing new joins the entry before it, as both become durable, or die, in the same moment. So
  there is at most one entry per manifest that raises the demand on some other shard.
* An entry asks for a mark only if no mark in the backlog, or durable, is known to contain it (the same epoch, as high).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lineage.marks import order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from checkpoint.versions import Mark, Version


@dataclass(slots=True)
class Entry:
    """The manifests from n = `first` up to that of `version`. The first one asks; the others ask for nothing more."""

    first: int
    version: Version
    asks: tuple[Mark, ...]
    met: int = 0  # how many of `asks` are known to be durable


class Backlog:
    """The entries of one shard, oldest first."""

    __slots__ = ("_asked", "_entries")

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self._asked: dict[tuple[str, int, int], int] = {}  # the highest n asked for, by the order of marks

    @property
    def last(self) -> Version | None:
        """The newest version in it."""
        return self._entries[-1].version if self._entries else None

    def append(self, version: Version, requires: Iterable[Mark]) -> None:
        """Add a complete version, which rests on these marks and on all that is in the backlog."""
        asks = tuple(mark for mark in requires if self._asked.get(order(mark), 0) < mark.version.n)
        for mark in asks:
            self._asked[order(mark)] = mark.version.n
        if asks or not self._entries:
            self._entries.append(Entry(version.n, version, asks))
        else:
            self._entries[-1].version = version

    def waits_for(self, durable: Callable[[Mark], bool]) -> Mark | None:
        """Give the first mark that the oldest entry waits for; None if it waits for none."""
        entry = self._entries[0]
        while entry.met < len(entry.asks):
            mark = entry.asks[entry.met]
            if not durable(mark):
                return mark
            entry.met += 1
        return None

    def pop(self) -> Version:
        """Take out the oldest entry; give its version."""
        version = self._entries.popleft().version
        if not self._entries:
            self._asked.clear()
        return version

    def cut_at(self, base: Version) -> None:
        entries = self._entries
        while entries and entries[-1].first > base.n:
            entries.pop()
        if entries and entries[-1].version.n > base.n:
            entries[-1].version = base
        self._recount()

    def drop_dead(self, dead: Callable[[Mark], bool]) -> bool:
        """Drop the first entry that asks for a dead mark, and all above it; say whether there was one."""
        entries = self._entries
        for index, entry in enumerate(entries):
            if any(map(dead, entry.asks)):
                while len(entries) > index:
                    entries.pop()
                self._recount()
                return True
        return False

    def _recount(self) -> None:
        self._asked = {order(mark): mark.version.n for entry in self._entries for mark in entry.asks}

    def __bool__(self) -> bool:
        return bool(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
