"""The ports of the drivers that ship, over a run's logs, whose records are objects with their sources.

What is sent has its source with it, for the oracle, so messages are made and read here and not by the codec.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from spillway.agents.core.actions import EmitKind
from spillway.agents.memory.input import MemoryInput
from spillway.agents.proof.shards.replica import DEAD_LETTERS, delivery_of
from spillway.agents.proof.shards.world import model
from spillway.agents.proof.shards.world.records import OUTCOMES, Record, again, arrival
from spillway.agents.proof.shards.world.world import Source
from spillway.agents.run.inputs import OF_STATES, Inputs
from spillway.agents.run.intake import PoisonError
from spillway.lineage import reasons
from spillway.lineage.errors import WireError
from spillway.lineage.message import Outcome
from spillway.lineage.ports import Outgoing, Output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from spillway.agents.core.actions import Emit
    from spillway.agents.core.joins import Fetch
    from spillway.agents.core.request import Delivery, Loss
    from spillway.agents.memory.groups import Group
    from spillway.agents.proof.shards.replica import Living
    from spillway.agents.proof.shards.world.records import Arrival
    from spillway.agents.proof.shards.world.world import StateWorld
    from spillway.lineage.ports import Bounds, Commit, Owner


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
        topic, body, loss = emit.destination or OUTCOMES, emit.payload, emit.loss
        if emit.kind is EmitKind.DEAD_LETTER:
            topic, body = DEAD_LETTERS, None
        elif emit.kind is not EmitKind.RESULT and (loss is not None or body is None):
            assert loss is not None  # a loss of this stage's own making
            body = Outcome(loss.kind, reason=loss.reason, text=loss.text, stage=self._stage)
        sent, work = emit.source, emit.work
        assert work is not None  # nobody has it yet
        source = Source(self._stage, *self._speaks(), emit.partition, work.offsets)
        record = Record(emit.request_id, body, sent.sent, sent.deadline, emit.hop, emit.path, emit.lost, source=source)
        return Outgoing(topic, emit.partition, None, record)  # type: ignore[arg-type] # a run's records are objects


class RunInputs(Inputs):
    """Which partitions are stopped, as the run's guards judge it."""

    def __init__(self, process: Living, topic: str) -> None:
        super().__init__(topic, OF_STATES, {})
        self._process = process
        self._name = topic

    def admits(self, partition: int, position: int | None, bounds: Bounds) -> bool:  # noqa: ARG002 - the run looks
        needed = None if position is None else max(position, self.durable(partition))
        world = self._process.world
        lost = world.scenario.guards.is_lost(needed, world.broker.bounds((self._name, partition)))
        if lost:
            world.result.stopped.add((self._process.stage, partition))
            self.stopped[partition] = needed or 0
        else:
            self.stopped.pop(partition, None)
        return not lost


class RunOutput(Output):
    """What a process sends, on its wire: the place and the record that its emission has made."""

    room = True

    def __init__(self, process: Living, stored: Callable[[Sequence[Any]], None]) -> None:
        self._process = process
        self._stored = stored

    def send(self, record: Any, token: object, *, vital: bool = True) -> None:  # noqa: ARG002 - nothing else is sent
        self._process.point("outputs.before")
        self._process.wire.send((record.topic, record.partition), again(record.value), partial(self._acked, token))

    def hurry(self) -> None:
        """Nothing: what is stored is reported at once."""

    def _acked(self, token: object) -> None:
        self._process.point("ack")
        self._stored([token])

    async def close(self) -> None:
        """Nothing: a run ends when its wires are quiet."""


class RunInput(MemoryInput):
    """A replica's input, which hands out again, now and then, what was read."""

    _world: StateWorld

    def __init__(self, process: Living, group: Group, owner: Owner, *, replays: bool) -> None:
        """`replays`: what was committed does not count, and all is read again."""
        name, world = f"{process.stage}.{process.replica}", process.world
        super().__init__(world, process, group, name, owner, world.scenario.commit_every)
        self._replays = replays
        self.places: dict[int, int] = {}  # what was committed when a partition was last asked for

    async def positions(self, partitions: Iterable[int]) -> dict[int, Commit]:
        found = {} if self._replays else await super().positions(partitions)
        self.places = {partition: found[partition].offset if partition in found else 0 for partition in partitions}
        return found

    def _fetched(self) -> dict[int, list[Any]]:
        world, found = self._world, cast("dict[int, list[Any]]", super()._fetched())
        for partition, records in found.items():
            if world.scenario.redeliveries and world.random.random() < world.scenario.redeliveries:
                place, first = (self._group.topic, partition), records[0].offset
                again = max(world.broker.bounds(place).start, first - world.random.randint(1, 5))
                found[partition] = [*(arrival(place, one) for one in world.broker.read(place, again, first)), *records]
        return found
