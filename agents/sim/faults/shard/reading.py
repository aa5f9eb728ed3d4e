"""What a member has read of its shard's input, backup or primary, as `spillway.agents.live.stateful.reading` has it.

Everything read goes into the tail (`spillway.agents.core.input_tail`), and, while there is a reign, on to its feed.
Where the tail is full nothing is read until a version has become durable.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from heapq import merge
from typing import TYPE_CHECKING, NamedTuple

from spillway.agents.sim.faults.processes.living import deliver, delivery_of
from spillway.agents.sim.faults.world.records import INGRESS
from spillway.checkpoint.notes import decode
from spillway.lineage.replication import InputPlace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from spillway.agents.core.input_tail import InputTail
    from spillway.agents.core.request import Delivery
    from spillway.agents.core.stateful_stage import StatefulCore
    from spillway.agents.sim.faults.processes.living import Living
    from spillway.agents.sim.faults.world.records import Record
    from spillway.checkpoint.dedup import Span
    from spillway.lineage.marks import Place

_CHUNK = 8  # records that are read without a look at the bound, at most


class Read(NamedTuple):
    """A record of the input that was read."""

    partition: int
    record: Record

    @property
    def offset(self) -> int:
        return self.record.offset


class ShardInput:
    """The input of one shard, as this member has read it."""

    def __init__(self, process: Living, place: Place, feed: Callable[[list[Read]], None]) -> None:
        world, scenario = process.world, process.world.scenario
        self._process, self._world, self._feed = process, world, feed
        self.topic = place[0] if world.graph.predecessors[place[0]] else INGRESS
        self.partitions = [p for p in range(scenario.partitions) if p % scenario.shards_of(place[0]) == place[1]]
        self._tail: InputTail[Read] = scenario.guards.tail(
            strip=lambda read: read, envelope=_envelope, most_records=scenario.tail_records
        )
        self._durable: dict[int, InputPlace] = {}
        self._stopped: set[int] = set()  # partitions that are not read until there is room
        self._lost: set[int] = set()  # partitions that do not have what is needed next
        self.started = False

    def start(self, places: Iterable[InputPlace]) -> None:
        self.started = True
        self._durable = {place.partition: place for place in places}
        for partition in self.partitions:
            place = self._at(partition)
            self._tail.start(partition, place.position, place.note)
            needed = place.position if partition in self._durable else None
            if self._world.lacks(self._process, (self.topic, partition), needed):
                self._lost.add(partition)
                continue
            self._tail.recall(partition, self._again(partition, decode(place.note, place.position).spans))
            poll = partial(self.poll, partition)
            self._world.subscribe(self._process, (self.topic, partition), poll)
            self._process.after(self._world.latency(), poll)

    def _again(self, partition: int, spans: Iterable[Span]) -> Iterator[Delivery]:
        for start, end in spans:
            for record in self._world.broker.read((self.topic, partition), start, end):
                yield delivery_of(partition, record)

    def poll(self, partition: int) -> None:
        broker, tail, scenario = self._world.broker, self._tail, self._world.scenario
        if partition in self._lost or self._world.lacks(self._process, (self.topic, partition), tail.next(partition)):
            self._lost.add(partition)
            return
        while not tail.full:
            position = tail.next(partition)
            if scenario.redeliveries and self._world.random.random() < scenario.redeliveries:
                position = max(0, position - self._world.random.randint(1, 5))
            chunk = []
            for record in broker.read((self.topic, partition), position):
                chunk.append(record)
                if len(chunk) == _CHUNK:
                    break
            fresh = [Read(partition, record) for record in chunk if tail.append(partition, Read(partition, record), 1)]
            if fresh:
                self._feed(fresh)
            if not fresh or not self._process.alive:
                return
        self._world.result.count("tail full")
        self._stopped.add(partition)

    def durable(self, places: Iterable[InputPlace]) -> None:
        for place in places:
            known = self._at(place.partition)
            if place.position < known.position or place == known:
                continue
            self._durable[place.partition] = place
            self._tail.trim(place.partition, place.position, place.note)
        self._look_for_room()

    def excuse(self, held: int) -> None:
        """Allow `held` records beyond the limit: they wait for a join, and its missing parts are still to be read."""
        self._tail.excused = held
        self._look_for_room()

    def _look_for_room(self) -> None:
        if self._stopped and not self._tail.full:
            stopped, self._stopped = sorted(self._stopped), set()
            for partition in stopped:
                self._process.after(self._world.latency(), partial(self.poll, partition))

    def begin(self, core: StatefulCore, inputs: Iterable[InputPlace]) -> list[Read]:
        """Have a core start on the partitions as a base has them; gives what it takes first, oldest first."""
        known: Mapping[int, InputPlace] = {place.partition: place for place in inputs}
        reads: list[Read] = []
        for partition in self.partitions:
            place = known.get(partition) or InputPlace(partition, self._at(partition).position)
            spans = core.assign_place(place)
            read = self._again(partition, self._tail.missing(partition, place.position, spans))
            for delivery in merge(
                self._tail.remembered(partition, place.position, spans), read, key=lambda one: one.offset
            ):
                core.remember(delivery)
            reads += self._tail.since(partition, place.position)
        return sorted(reads, key=lambda read: read.record.appended)

    def position(self, partition: int) -> int:
        return self._at(partition).position if partition in self.partitions else 0

    @property
    def waits(self) -> bool:
        """Whether there is more to read, and no room for it before a version becomes durable."""
        return bool(self._stopped)

    @property
    def read_up(self) -> bool:
        broker = self._world.broker
        return self.started and all(
            next(broker.read((self.topic, partition), self._tail.next(partition)), None) is None
            for partition in self.partitions
            if partition not in self._lost
        )

    def _at(self, partition: int) -> InputPlace:
        return self._durable.get(partition) or InputPlace(partition, 0)


class Feed:
    """What a reign has still to take, in order; it goes on whenever the core has room."""

    def __init__(self, process: Living, core: StatefulCore) -> None:
        self._process = process
        self._core = core
        self._queue: deque[Read] = deque()
        self._taking = False

    def add(self, reads: Iterable[Read]) -> None:
        self._queue.extend(reads)

    def deliver(self) -> bool:
        if self._taking or not self._queue:
            return False
        world = self._process.world
        self._taking = True
        before = len(self._queue)
        while self._queue and self._core.room:
            read = self._queue.popleft()
            delivery = delivery_of(read.partition, read.record)
            deliver(self._core, self._process.stage, self._process.now, delivery, world.scenario.poison)
        self._taking = False
        if self._queue:
            world.result.count("no room")
        return len(self._queue) < before

    def stop(self) -> None:
        self._queue.clear()

    def __len__(self) -> int:
        return len(self._queue)


def _envelope(read: Read) -> Delivery:
    return delivery_of(read.partition, read.record)
