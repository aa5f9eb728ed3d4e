"""A model of Kafka: logs, committed offsets with notes, group ownership, transactions with fencing.

As in Kafka: a commit of a member that does not own the partition (any more) is refused; a transaction holds its records
and offsets together; a new producer under a transactional id aborts what its predecessor left open and fences it; a
reader of committed records stops before the first open one. Offsets have gaps: a transaction's marker takes one.

A compacted log's record has a key, and None as its value where it is a tombstone. Compaction looks only at records that
are older than the lag: of these the newest of each key stays, unless it is a tombstone. Nothing says when it happens.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from spillway.lineage.errors import FencedError
from spillway.lineage.ports import Bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

Place = tuple[str, int]  # topic, partition


class Standing(Enum):
    """Where a record stands with its transaction."""

    COMMITTED = "committed"
    OPEN = "open"
    ABORTED = "aborted"


class Stored(Protocol):
    """What a broker keeps: a record of whatever type a world has."""

    offset: int
    appended: float  # unix seconds
    standing: Standing

    @property
    def key(self) -> Hashable: ...

    @property
    def value(self) -> object: ...


R = TypeVar("R", bound=Stored)


def _offset(record: R) -> int:
    return record.offset


@dataclass(slots=True)
class Producer(Generic[R]):
    """A transactional producer; void once another one has its id."""

    transactional_id: str
    open: list[tuple[Place, R]] = field(default_factory=list)


class Broker(Generic[R]):
    """All logs, all groups."""

    def __init__(
        self, clock: Callable[[], float], wake: Callable[[Place], None], gap: Callable[[Place], int] = lambda _place: 0
    ) -> None:
        """`wake` is told of every place where there is something new to read.

        `gap` returns how many offsets stand before the next record of a place, whatever has taken them.
        """
        self._clock = clock
        self._wake = wake
        self._gap = gap
        self.whole: dict[Place, list[R]] = {}  # what was ever written, for the oracle
        self.logs: dict[Place, list[R]] = {}
        self._starts: dict[Place, int] = {}
        self._ends: dict[Place, int] = {}
        self._committed: dict[tuple[str, int], tuple[int, str]] = {}
        self._owners: dict[tuple[str, int], int] = {}
        self._producers: dict[str, Producer[R]] = {}

    # Logs ------------------------------------------------------------------------------------------------------

    def append(self, place: Place, record: R) -> int:
        self.whole.setdefault(place, []).append(record)
        record.offset = self._ends.get(place, 0) + self._gap(place)
        record.appended = self._clock()
        self._ends[place] = record.offset + 1
        self.logs.setdefault(place, []).append(record)
        self._wake(place)
        return record.offset

    def read(self, place: Place, start: int, end: int | None = None) -> Iterator[R]:
        """Return the committed records from `start` on, up to `end` or the first one that is open."""
        log = self.logs.get(place, [])
        for record in log[bisect_left(log, start, key=_offset) :]:
            if record.standing is Standing.OPEN or (end is not None and record.offset >= end):
                return
            if record.standing is Standing.COMMITTED:
                yield record

    def end(self, place: Place) -> int:
        return self._ends.get(place, 0)

    def stable_end(self, place: Place, end: int | None = None) -> int:
        """Return up to where a reader of committed records gets, `end` at most."""
        opened = [r.offset for r in self.logs.get(place, ()) if r.standing is Standing.OPEN]
        stable = min(opened, default=self.end(place))
        return stable if end is None else min(stable, end)

    def bounds(self, place: Place) -> Bounds:
        """Return the first offset of a log, and the one that the next record gets."""
        return Bounds(self._starts.get(place, 0), self.end(place))

    def delete_before(self, place: Place, offset: int) -> None:
        self._starts[place] = max(offset, self._starts.get(place, 0))
        self.logs[place] = [record for record in self.logs.get(place, []) if record.offset >= offset]

    def cut(self, place: Place, end: int) -> None:
        """Cut a log's end off, as an unclean election or a topic that is made again does; offsets are used again."""
        self._ends[place] = end
        self._starts[place] = min(end, self._starts.get(place, 0))
        self.logs[place] = [record for record in self.logs.get(place, []) if record.offset < end]

    def compact(self, place: Place, before: int) -> None:
        log = self.logs.get(place, [])
        old = bisect_left(log, before, key=_offset)
        newest = {record.key: record for record in log[:old]}
        kept = [r for r in log[:old] if newest[r.key] is r and r.value is not None]
        if len(kept) < old:
            self.logs[place] = kept + log[old:]

    # Groups ----------------------------------------------------------------------------------------------------

    def own(self, group: str, partition: int, member: int) -> None:
        self._owners[group, partition] = member

    def position(self, group: str, partition: int) -> tuple[int, str] | None:
        """Return the committed offset and its note, None where there is none."""
        return self._committed.get((group, partition))

    def committed(self, group: str, partition: int) -> tuple[int, str]:
        """Return the same, and 0 where there is none."""
        return self.position(group, partition) or (0, "")

    def commit(self, group: str, member: int, offsets: dict[int, tuple[int, str]]) -> None:
        """Commit; raises FencedError, and commits nothing, if one of the partitions is not the member's."""
        if any(self._owners.get((group, partition)) != member for partition in offsets):
            raise FencedError
        for partition, place in offsets.items():
            self._committed[group, partition] = place

    # Transactions ----------------------------------------------------------------------------------------------

    def producer(self, transactional_id: str) -> Producer[R]:
        """Make a producer; the one before it under this id is fenced and what it left open aborted."""
        before = self._producers.get(transactional_id)
        if before is not None:
            self._settle(before, Standing.ABORTED)
        made = self._producers[transactional_id] = Producer[R](transactional_id)
        return made

    def produce(self, producer: Producer[R], place: Place, record: R) -> int:
        self._check(producer)
        record.standing = Standing.OPEN
        producer.open.append((place, record))
        return self.append(place, record)

    def finish(self, producer: Producer[R], group: str, member: int, offsets: dict[int, tuple[int, str]]) -> None:
        self._check(producer)
        self.commit(group, member, offsets)
        self._settle(producer, Standing.COMMITTED)

    def abort(self, producer: Producer[R]) -> None:
        self._check(producer)
        self._settle(producer, Standing.ABORTED)

    def is_open(self, place: Place) -> bool:
        return any(where == place for producer in self._producers.values() for where, _ in producer.open)

    def _check(self, producer: Producer[R]) -> None:
        if self._producers[producer.transactional_id] is not producer:
            raise FencedError

    def _settle(self, producer: Producer[R], standing: Standing) -> None:
        places: Iterable[Place] = {place for place, _ in producer.open}
        for _, record in producer.open:
            record.standing = standing
        producer.open.clear()
        for place in sorted(places):
            self._ends[place] += 1  # the marker
            self._wake(place)
