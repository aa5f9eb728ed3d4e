"""The ports of the stage and the gate that ship, over a run's logs, whose records are objects with their sources.

A run's groups deal partitions one by one; a port tells its owner of them as Kafka does. What is sent has its source
with it, for the oracle, so messages are made and read here and not by the codec.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from spillway.agents.run.inputs import OF_STATES, Inputs
from spillway.agents.run.intake import PoisonError
from spillway.agents.sim.faults.processes.living import again, delivery_of, told
from spillway.agents.sim.faults.world import model
from spillway.agents.sim.faults.world.records import arrival
from spillway.lineage import reasons
from spillway.lineage.errors import FencedError, WireError
from spillway.lineage.ports import Bounds, Clock, Commit, Input, Outgoing, Output, Spans

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from spillway.agents.core.actions import Emit
    from spillway.agents.core.joins import Fetch
    from spillway.agents.core.request import Delivery, Loss
    from spillway.agents.sim.faults.processes.living import Living
    from spillway.agents.sim.faults.world.records import Arrival
    from spillway.agents.sim.faults.world.world import StateWorld
    from spillway.lineage.ports import Owner

_CHUNK: Final = 8  # records at once
_LATE: Final = 0.02  # seconds until a partition that was out of range is read on


class RunIntake:
    """Makes deliveries of a run's records; some are poison."""

    def __init__(self, stage: str, poison: float) -> None:
        self._stage, self._poison = stage, poison

    def envelope(self, record: Arrival) -> Delivery:
        return delivery_of(record.partition, record.record)

    remembered = envelope

    def delivery(self, record: Arrival) -> Delivery:
        delivery = self.envelope(record)
        who = self._stage, delivery.predecessor, delivery.request_id
        if self._poison and not delivery.lost and model.unreadable(*who, self._poison):
            raise PoisonError(WireError(reasons.BAD_INPUT, "scripted"), delivery)
        return delivery

    def again(self, _fetch: Fetch, record: Arrival | None) -> tuple[Any, Loss | None]:
        assert record is not None  # a run drops no values
        return record.record.body, None


class RunEmission:
    """Makes a run's records of what a stage sends."""

    def __init__(self, stage: str, speaks: Callable[[], tuple[int, int]] = lambda: (-1, 0)) -> None:
        """`speaks` gives the shard of a stateful stage, and the epoch of its reign."""
        self._stage, self._speaks = stage, speaks

    def message(self, emit: Emit) -> Outgoing:
        (topic, partition), record = told(emit, self._stage, *self._speaks())
        return Outgoing(topic, partition, None, record)  # type: ignore[arg-type] # a run's records are objects


class ProcessClock(Clock):
    """A process's clocks."""

    def __init__(self, process: Living) -> None:
        self._process = process

    def now(self) -> float:
        return self._process.now

    def monotonic(self) -> float:
        return self._process.world.now


class RunInputs(Inputs):
    """Which partitions are stopped, as the run's guards judge it."""

    def __init__(self, process: Living, topic: str) -> None:
        super().__init__(topic, OF_STATES, {})
        self._process = process
        self._name = topic

    def admits(self, partition: int, position: int | None, bounds: Bounds) -> bool:  # noqa: ARG002 - the run looks
        needed = None if position is None else max(position, self.durable(partition))
        lost = self._process.world.lacks(self._process, (self._name, partition), needed)
        if lost:
            self.stopped[partition] = needed or 0
        else:
            self.stopped.pop(partition, None)
        return not lost


class RunSpans(Spans):
    """Reads the run's logs again."""

    def __init__(self, world: StateWorld) -> None:
        self._world = world

    async def bounds(self, topic: str, partitions: Iterable[int]) -> dict[int, Bounds]:
        await asyncio.sleep(self._world.latency())
        return {partition: self._world.broker.bounds((topic, partition)) for partition in partitions}

    async def read(
        self,
        topic: str,
        spans: Mapping[int, Bounds],
        *,
        values: bool = True,  # noqa: ARG002 - a record is an object
    ) -> AsyncIterator[list[Any]]:
        for partition, span in spans.items():
            place = topic, partition
            while span.start < span.end and self._world.broker.stable_end(place, span.end) < span.end:
                await asyncio.sleep(_OPEN_SECONDS)
                self._world.broker.time_out(place)
            found = [arrival(place, one) for one in self._world.broker.read(place, span.start, span.end)]
            if found:
                yield found

    async def pick(self, topic: str, places: Iterable[tuple[int, int]]) -> dict[tuple[int, int], Any]:
        await asyncio.sleep(self._world.latency())
        found = {}
        for partition, offset in places:
            for one in self._world.broker.read((topic, partition), offset, offset + 1):
                found[partition, offset] = arrival((topic, partition), one)
        return found

    async def close(self) -> None:
        """Nothing: there is no connection."""


_OPEN_SECONDS: Final = 0.15  # until the broker aborts a transaction that somebody waits for


class RunOutput(Output):
    """What a process sends, on its wire: the place and the record that its emission has made."""

    room = True

    def __init__(self, process: Living, stored: Callable[[Sequence[Any]], None]) -> None:
        self._process = process
        self._stored = stored

    def send(self, record: Any, token: object, *, vital: bool = True) -> None:  # noqa: ARG002 - nothing else is sent
        self._process.point("outputs.before")
        self._process.wire.send((record.topic, record.partition), again(record.value), partial(self._acked, token))

    def _acked(self, token: object) -> None:
        self._process.point("ack")
        self._stored([token])

    async def close(self) -> None:
        """Nothing: a run ends when its wires are quiet."""


def positions_of(world: StateWorld, process: Living, partitions: Iterable[int]) -> dict[int, Commit]:
    """Return what is committed for a process's group; a partition without is missing."""
    found = {partition: world.broker.committed(process.stage, partition) for partition in partitions}
    return {partition: Commit(*place) for partition, place in found.items() if place[0]}


@dataclass(eq=False)
class _Turn:
    """Something that happens to a replica's partitions, one after the other."""

    partitions: frozenset[int]
    then: Callable[[], object]


class RunInput(Input):
    """A replica's partitions of one topic, as the run's groups deal them."""

    def __init__(self, world: StateWorld, process: Living, topic: str, owner: Owner, *, replays: bool) -> None:
        """`replays`: what was committed does not count, and all is read again."""
        self._world, self._process, self._owner = world, process, owner
        self._topic, self._replays = topic, replays
        self.mine: frozenset[int] = frozenset()
        self.dealt: frozenset[int] = frozenset()  # last, whether it has come to it or not
        self.positions_read: dict[int, int] = {}
        self._heard: set[int] = set()
        self._fresh = asyncio.Event()
        self._turns: asyncio.Queue[_Turn] = asyncio.Queue()
        self._handing = False
        self.changing = 0
        self.places: dict[int, int] = {}  # what was committed when a partition was last asked for
        process.run(self._belong())
        process.run(self._read())

    # Partitions come and go ------------------------------------------------------------------------------------

    def deal(self, partitions: Iterable[int], then: Callable[[], object] = bool) -> None:
        """Assign exactly these partitions from now on. `then` is called when those that go are released."""
        self.changing += 1
        self.dealt = frozenset(partitions)
        self._turns.put_nowait(_Turn(self.dealt, then))

    async def _belong(self) -> None:
        while True:
            turn = await self._turns.get()
            self.positions_read = {}
            await self._owner.revoked()
            self.commit_now()
            self.mine = turn.partitions
            turn.then()
            for partition in self.mine:
                committed = self._own(partition)
                self.places[partition] = 0 if self._replays else committed
            for partition in self.mine - self._heard:
                self._heard.add(partition)
                self._world.subscribe(self._process, (self._topic, partition), self._fresh.set)
            starts = dict(await self._owner.assigned(self.mine))
            self.changing -= 1
            if not self.changing:
                self.positions_read = starts
                self._fresh.set()

    def _own(self, partition: int) -> int:
        """Become the owner of a partition, and return where it is committed."""
        return self._world.claim(self._process, partition)

    async def positions(self, partitions: Iterable[int]) -> dict[int, Commit]:
        await asyncio.sleep(self._world.latency())
        return {} if self._replays else positions_of(self._world, self._process, partitions)

    async def bounds(self, partitions: Iterable[int]) -> dict[int, Bounds]:
        return {partition: self._world.broker.bounds((self._topic, partition)) for partition in partitions}

    # Reading ---------------------------------------------------------------------------------------------------

    @property
    def read_up(self) -> bool:
        """Whether everything was handed over, and accepted."""
        broker = self._world.broker
        return not (self.changing or self._handing) and all(
            next(broker.read((self._topic, partition), position), None) is None
            for partition, position in self.positions_read.items()
        )

    async def _read(self) -> None:
        while True:
            await self._fresh.wait()
            self._fresh.clear()
            positions = self.positions_read
            for partition in sorted(positions):
                if positions is self.positions_read and (some := self._some(partition, positions)):
                    self._fresh.set()  # there may be more
                    self._handing = True
                    await self._owner.accept({partition: some})  # type: ignore[dict-item]
                    self._handing = False

    def _some(self, partition: int, positions: dict[int, int]) -> list[Arrival]:
        world, place = self._world, (self._topic, partition)
        position, bounds = positions[partition], world.broker.bounds(place)
        if not bounds.start <= position <= bounds.end:
            start = self._owner.out_of_range(partition, position, bounds)
            del positions[partition]
            if start is not None:
                positions[partition] = start
                self._process.after(_LATE, self._fresh.set)
            return []
        found = [arrival(place, one) for one in islice(world.broker.read(place, position), _CHUNK)]
        if not found:
            return []
        positions[partition] = found[-1].offset + 1
        if world.scenario.redeliveries and world.random.random() < world.scenario.redeliveries:
            again = max(bounds.start, position - world.random.randint(1, 5))
            found = [*(arrival(place, one) for one in world.broker.read(place, again, position)), *found]
        return found

    # Commits ---------------------------------------------------------------------------------------------------

    def commit_now(self) -> bool:
        """Commit what the owner has finished; False where the group refuses it."""
        commits = self._owner.commits()
        offsets: dict[int, tuple[int, str]] = {p: (*commits[p],) for p in self.mine & commits.keys()}
        if not offsets or self._world.answering(self._world.now) > self._world.now:
            return True
        try:
            self._world.broker.commit(self._process.stage, self._process.incarnation, offsets)
        except FencedError:
            return False
        done = {partition: Commit(*place) for partition, place in offsets.items()}
        self._process.after(self._world.latency(), lambda: self._owner.committed(done))
        return True

    async def commit(self, offsets: Mapping[int, Commit]) -> bool:
        raise NotImplementedError(f"the run commits by itself: {offsets}")

    async def close(self, *, leave: bool) -> None:
        """Nothing: a replica of a run is killed."""
