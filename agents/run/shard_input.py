"""What a member reads of its shard's input, whether it is primary or backup: the owner of its input.

Everything read goes into the tail (`spillway.agents.core.input_tail`), and, while there is a reign, on to its feed.
Invariants:

* The position of the newest durable version is what the member's group commits, with its note: a restart begins there,
  whatever the role was. The version log is the truth; where its position is ahead of the group's, reading starts there.
* After a rebalance reading goes on behind what the tail has. A chunk that was on its way meanwhile is void.
* A member can be promoted when all partitions of its shard were started (`started`): their spans below the durable
  position were read again, once. A base may be ahead of what the member has read; what memory needs of the stretch
  between is read first (`complete`), as reading on to there may have to wait for room.
* What a reign has still to take is bounded by itself (`fed`): the tail does not count it where it keeps no values, and
  excuses what waits for a join. What such a join waits for comes as well when the reign has taken what it has.
"""

from __future__ import annotations

import asyncio
from functools import partial
from heapq import merge as merge_sorted
from typing import TYPE_CHECKING, Final

from spillway.agents.core.input_tail import RECORD_BYTES, VALUE_BYTES, InputTail
from spillway.checkpoint.notes import decode
from spillway.lineage.ports import Commit, Owner, Record
from spillway.lineage.replication import InputPlace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from spillway.agents.core.request import Delivery
    from spillway.agents.core.stateful_stage import StatefulCore
    from spillway.agents.metrics import StageMetrics
    from spillway.agents.run.inputs import Inputs
    from spillway.agents.run.intake import Intake
    from spillway.agents.run.memory import Memory
    from spillway.checkpoint.dedup import Span
    from spillway.lineage.ports import Bounds

_SETTLE_SECONDS = 0.02
_SETTLE_AT_ONCE = 50

FED_BYTES: Final = 8 << 20  # of values that a reign has still to take, beyond which nothing more is read for it


def _stripped(record: Record) -> Record:
    return Record(  # spelled out: `dataclasses.replace` takes ten times as long
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        record.log_append,
        record.key,
        None,
        record.headers,
        stripped=record.value is not None,
    )


_TAIL: Final = partial(InputTail[Record], strip=_stripped)


class ShardInput(Owner):
    """The input of one shard, as this member has read it."""

    def __init__(
        self,
        intake: Intake,
        memory: Memory,
        metrics: StageMetrics,
        inputs: Inputs,
        *,
        feed: Callable[[list[Record]], None],
        crashed: Callable[[BaseException], None],
        joins: bool = False,
        tail: Callable[..., InputTail[Record]] = _TAIL,
    ) -> None:
        """`feed` is given what is read; `crashed` ends the member. `joins`: a reign reads values again.

        `tail` makes where what was read is kept.
        """
        self._intake = intake
        self._memory = memory
        self._metrics = metrics
        self.inputs = inputs
        inputs.durable = lambda partition: self._at(partition).position  # another member may be ahead of this one
        self._feed = feed
        self._end = crashed
        self._loop = asyncio.get_running_loop()
        self._tail = tail(
            envelope=intake.remembered,
            most_values=VALUE_BYTES if joins else None,
            record_bytes=RECORD_BYTES,
        )
        self._durable: dict[int, InputPlace] = {}  # of the newest durable version; told at first, before reading begins
        self._completed: dict[int, list[Delivery]] = {}  # what was read for the newest reign, by partition
        self._ready: dict[int, asyncio.Task[None]] = {}
        self._told: dict[int, int] = {}  # offsets that the broker has as committed
        self._room = asyncio.Event()
        self._room.set()
        self._stopping = False
        self._settling: asyncio.TimerHandle | None = None
        self._started = asyncio.Event()
        self._assignment = 0  # which one this is: what came in an earlier one is void
        self.fed: Callable[[], int] = int  # bytes of values that the reign has still to take

    # What comes ------------------------------------------------------------------------------------------------

    async def accept(self, records: Mapping[int, Sequence[Record]]) -> None:
        assignment = self._assignment
        for partition, some in records.items():
            ready = self._ready.get(partition)
            if ready is not None and not ready.done():
                await asyncio.wait([ready])
            while self._full and not self._stopping:
                self._room.clear()
                await self._room.wait()
            if self._stopping or assignment != self._assignment or partition not in self._ready:
                return
            append = self._tail.append
            fresh = [each for each in some if append(partition, each, len(each.value or b""))]
            if fresh:
                self._feed(fresh)

    @property
    def _full(self) -> bool:
        return self._tail.full or self.fed() >= FED_BYTES

    def stop_taking(self) -> None:
        self._stopping = True
        self._room.set()

    # What becomes durable --------------------------------------------------------------------------------------

    def durable(self, places: Iterable[InputPlace]) -> None:
        for place in places:
            known = self._at(place.partition)
            if place.position < known.position or place == known:
                continue
            self._durable[place.partition] = place
            self._tail.trim(place.partition, place.position, place.note)
        self._look_for_room()
        if self._settling is None:
            self._settling = self._loop.call_later(_SETTLE_SECONDS, self._settle)

    def excuse(self, held: int) -> None:
        """Allow `held` records beyond the limit: they wait for a join, and its missing parts are still to be read.

        Call it whenever the reign has taken something, too: there may be room again.
        """
        self._tail.excused = held
        self._look_for_room()

    def _look_for_room(self) -> None:
        if not self._full:
            self._room.set()

    def _settle(self) -> None:
        self._settling = None
        if self._tail.settle(_SETTLE_AT_ONCE):
            self._settling = self._loop.call_later(_SETTLE_SECONDS, self._settle)

    # What a promotion needs ------------------------------------------------------------------------------------

    async def started(self) -> None:
        await self._started.wait()

    @property
    def partitions(self) -> list[int]:
        return self._tail.partitions

    @property
    def held(self) -> int:
        return self._tail.held

    @property
    def waits(self) -> bool:
        """Whether there is more to read, and no room before a version becomes durable or the reign takes some."""
        return not self._room.is_set()

    def position(self, partition: int) -> int:
        """Return what the newest durable version covers of a partition, from its beginning on."""
        return self._at(partition).position

    def begin(self, core: StatefulCore, places: Iterable[InputPlace]) -> list[Record]:
        """Start a core on the partitions as a base has them, and return the records that it takes first."""
        known, positions = {place.partition: place for place in places}, {}
        for partition in self.partitions:
            place = known.get(partition) or InputPlace(partition, self.position(partition))
            positions[partition] = place.position
            for delivery in self._remembered(partition, place.position, core.assign_place(place)):
                core.remember(delivery)
        return self._since(positions)

    async def complete(self, places: Iterable[InputPlace]) -> None:
        """Read what a base's memory needs and this member has never read. Call it before the base's reign begins."""
        self._completed.clear()
        for partition, position, note, _ in places:
            missing = self._tail.missing(partition, position, decode(note, position).spans)
            if missing:
                self._completed[partition] = [each async for each in self._memory.read(partition, missing)]

    def _remembered(self, partition: int, position: int, spans: Iterable[Span]) -> Iterator[Delivery]:
        """What a base's memory of a partition is rebuilt from, in offset order."""
        read = list(self._tail.remembered(partition, position, spans))
        known = {delivery.offset for delivery in read}  # some of it may have come meanwhile
        again = (delivery for delivery in self._completed.get(partition, ()) if delivery.offset not in known)
        return merge_sorted(read, again, key=lambda delivery: delivery.offset)

    def at(self, partition: int, offset: int) -> Record | None:
        """One record that is not covered yet; None where its value is not kept."""
        return self._tail.at(partition, offset)

    def _since(self, positions: Mapping[int, int]) -> list[Record]:
        """Everything from a base's positions on that was read, oldest first; nothing once no more is taken."""
        if self._stopping:
            return []
        parts = [self._tail.since(partition, position) for partition, position in positions.items()]
        return list(merge_sorted(*parts, key=lambda record: record.timestamp))

    # The input's owner -----------------------------------------------------------------------------------------

    def commits(self) -> dict[int, Commit]:
        """Give the newest durable positions that the group does not have."""
        return {
            partition: Commit(place.position, place.note)
            for partition, place in self._durable.items()
            if place.position > self._told.get(partition, 0)
        }

    def committed(self, offsets: Mapping[int, Commit]) -> None:
        for partition, commit in offsets.items():
            self._told[partition] = max(commit.offset, self._told.get(partition, 0))
            self._metrics.committed[partition] = commit.offset

    async def assigned(self, partitions: frozenset[int]) -> dict[int, int]:
        """Start on partitions that are new; go on where the tail ends on the others.

        One that is stopped counts as started: a reign begins with it as it is, and gets nothing of it.
        """
        self._assignment += 1
        places = {partition: self._at(partition) for partition in sorted(partitions - self._ready.keys())}
        positions = {p: place.position if p in self._durable else None for p, place in places.items()}
        starts = await self.inputs.starts(
            positions | {partition: self._tail.next(partition) for partition in partitions - places.keys()}
        )
        for partition, place in places.items():
            self._tail.start(partition, place.position, place.note)
            self._ready[partition] = self._loop.create_task(self._start(place, stopped=partition not in starts))
        self._loop.create_task(self._all_started())
        return starts

    async def _start(self, place: InputPlace, *, stopped: bool) -> None:
        if stopped:
            return
        try:
            spans = decode(place.note, place.position).spans
            self._tail.recall(place.partition, [each async for each in self._memory.read(place.partition, spans)])
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - without its memory the member could not be promoted
            self._end(error)

    async def _all_started(self) -> None:
        await asyncio.gather(*self._ready.values())
        self._started.set()

    async def revoked(self) -> None:
        """Void what is under way. What was read stays: it may be read on, and is needed for a promotion."""
        self._assignment += 1

    def out_of_range(self, partition: int, position: int, bounds: Bounds) -> int | None:
        return max(position, bounds.start) if self.inputs.admits(partition, position, bounds) else None

    def crashed(self, error: BaseException) -> None:
        self._end(error)

    # Inside ----------------------------------------------------------------------------------------------------

    def _at(self, partition: int) -> InputPlace:
        return self._durable.get(partition) or InputPlace(partition, 0)
