"""What the processes of a stateful pipeline have in common: points at which they may die, and a wire of their own."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from spillway.agents.core.actions import EmitKind, Ok
from spillway.agents.core.request import Delivery
from spillway.agents.memory.loop import KilledError
from spillway.agents.sim.faults.world.model import Item, unreadable
from spillway.agents.sim.faults.world.records import OUTCOMES, Record
from spillway.agents.sim.faults.world.world import Process, Source
from spillway.lineage import reasons
from spillway.lineage.errors import CheckpointError, WireError
from spillway.lineage.message import PREDICTION, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.agents.core.actions import Emit
    from spillway.agents.core.request import Request
    from spillway.agents.memory.broker import Place
    from spillway.agents.sim.faults.world.follower import Follower
    from spillway.agents.sim.faults.world.world import StateWorld


DEAD_LETTERS = "dead"


@dataclass(slots=True, frozen=True)
class Report:
    """The payload of a delivery to the gate."""

    outcome: Outcome


def delivery_of(partition: int, record: Record) -> Delivery:
    hop = record.hop
    return Delivery(
        record.request_id, partition, record.offset, record.sent, record.deadline,
        hop.stage if hop is not None else "", hop, dict(record.path), record.lost, record.appended, record.body,
    )  # fmt: skip


def report_of(partition: int, record: Record) -> Delivery:
    delivery = delivery_of(partition, record)
    delivery.payload = Report(record.body)
    return delivery


def deliver(core: Any, stage: str, now: float, delivery: Delivery, poison: float) -> None:
    if poison and not delivery.lost and unreadable(stage, delivery.predecessor, delivery.request_id, poison):
        core.fail(now, delivery, reasons.BAD_INPUT, "scripted")
    else:
        core.deliver(now, delivery)


def told(emit: Emit, stage: str, shard: int = -1, epoch: int = 0) -> tuple[Place, Record]:
    """Give what a core sends, where to, and of what it was made. `epoch`: of a stateful stage's reign."""
    topic, body = emit.destination or OUTCOMES, emit.payload
    if emit.kind is EmitKind.DEAD_LETTER:
        topic, body = DEAD_LETTERS, None
    elif emit.kind is not EmitKind.RESULT and (emit.loss is not None or body is None):
        loss = emit.loss
        assert loss is not None  # a loss of this stage's own making
        body = Outcome(loss.kind, reason=loss.reason, text=loss.text, stage=stage)
    source, work = emit.source, emit.work
    assert work is not None  # nobody has it yet
    made_of = Source(stage, shard, epoch, emit.partition, work.offsets)
    record = Record(emit.request_id, body, source.sent, source.deadline, emit.hop, emit.path, emit.lost, source=made_of)
    return (topic, emit.partition), record


def again(record: Record) -> Record:
    return replace(record, offset=-1, appended=0.0)


def item_of(request: Request) -> Item:
    parts = sorted(request.parts, key=lambda part: part.predecessor)
    return Item(request.request_id, tuple((part.predecessor, part.payload) for part in parts))


def result_of(world: StateWorld, stage: str, value: str) -> Ok:
    """Send a value on its way; where the stage chooses, the value decides which."""
    chosen = world.scenario.chosen(stage, value)
    going = world.graph.successors[stage] if chosen is None else chosen
    if not going:
        return Ok({None: Outcome(PREDICTION, outputs={"value": value}, stage=stage)}, chosen)
    return Ok(dict.fromkeys(going, value), chosen)


# What a process has sent and the broker does not have yet: in order for each partition, whatever becomes of it.
#
# As with an idempotent producer: of the messages to one partition a beginning arrives when the process dies, and none
# comes before an earlier one. A process that is stopped may have handed over some of them already; the others go when
# it goes on, whatever has happened meanwhile.


@dataclass(slots=True)
class Flight:
    """Records that arrive together: one, or a transaction."""

    records: tuple[tuple[Place, Record], ...]
    acked: Callable[[], None]
    lost: bool = False
    frozen: bool = False
    flown: int = 0  # how often it has left


class Wire:
    """One process's producer."""

    def __init__(self, world: StateWorld, process: Process) -> None:
        self._world = world
        self._process = process
        self._lanes: dict[Place, deque[Flight]] = {}
        self._lands: dict[Place, float] = {}
        self.slow = 0.0  # seconds that every message takes longer

    def send(self, place: Place, record: Record, acked: Callable[[], None], takes: float = 0.0) -> None:
        """Send a record; `acked` is called when the broker has it. `takes`: seconds beside the network's."""
        self.send_together(((place, record),), acked, takes)

    def send_together(
        self, records: tuple[tuple[Place, Record], ...], acked: Callable[[], None], takes: float = 0.0
    ) -> None:
        lane = records[0][0]
        stopped = self._process.withheld is not None
        flight = Flight(records, acked, frozen=stopped)
        self._lanes.setdefault(lane, deque()).append(flight)
        if not stopped:
            self._fly(lane, flight, takes)

    def _fly(self, lane: Place, flight: Flight, takes: float) -> None:
        world = self._world
        when = world.now + world.latency() + takes + self.slow
        when = self._lands[lane] = world.answering(max(when, self._lands.get(lane, 0.0)))
        flight.flown += 1
        flown = flight.flown
        world.at(when, lambda: self._land(lane, flight, flown))

    def _land(self, lane: Place, flight: Flight, flown: int) -> None:
        if flight.flown != flown:  # it was called back
            return
        self._lanes[lane].popleft()
        if flight.lost:
            return
        world = self._world
        for place, record in flight.records:
            world.broker.append(place, record)
        self._process.after(world.latency(), flight.acked)

    def stopped(self) -> None:
        """Note that the process stands still: some of what is under way has not left it."""
        for flights in self._lanes.values():
            gone = self._world.random.randint(0, len(flights))
            for index, flight in enumerate(flights):
                if index >= gone:
                    flight.frozen = True
                    flight.flown += 1

    def goes_on(self) -> None:
        for lane, flights in self._lanes.items():
            for flight in flights:
                if flight.frozen:
                    flight.frozen = False
                    self._fly(lane, flight, 0.0)

    def died(self) -> None:
        for flights in self._lanes.values():
            kept = self._world.random.randint(0, len(flights))
            for index, flight in enumerate(flights):
                flight.lost = index >= kept or flight.frozen

    def is_quiet(self, *but: Place) -> bool:
        return not any(flights for lane, flights in self._lanes.items() if lane not in but)


class Living(Process):
    """A process that dies where it is told to, and not only between two events."""

    def __init__(self, world: StateWorld, stage: str, replica: int) -> None:
        self.role = ""
        skew = world.scenario.skew
        ahead = world.random.uniform(-skew, skew) if skew else 0.0
        super().__init__(world, stage, replica, ahead=ahead)
        self.wire = Wire(world, self)
        self.since = 0.0  # when it was stopped

    @property
    def has(self) -> set[int]:
        """The partitions that its group gives it and that it reads; none where it is in none."""
        return set()

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        super().after(seconds, lambda: self.attempt(what))

    def attempt(self, what: Callable[[], None]) -> None:
        try:
            what()
        except KilledError:
            pass
        except (CheckpointError, WireError) as error:
            self.world.result.problems.append(f"{self.stage}.{self.replica}: {error}")
            self.kill()

    def point(self, name: str) -> None:
        """Come to a point by name; the process may not come beyond it."""
        self.world.points(self, name)
        if not self.alive:
            raise KilledError

    def stop(self) -> None:
        super().stop()
        self.since = self.world.now
        self.wire.stopped()

    def go_on(self) -> None:
        self.wire.goes_on()
        super().go_on()

    def kill(self) -> None:
        """End now. Of what was under way to each partition, a beginning arrives."""
        super().kill()
        self.wire.died()


# What the gate's replicas and those of stateless stages have in common: partitions that come and go.
#
# A partition that comes is read when its committed offset is known and, after that, the version logs were read to the
# ends that they have by then: what the owner before knew to be dead, and committed past, would else count as taken.


class Replica(Living):
    """One incarnation of one replica. `group`: its topic's consumer group, `topic` what it reads."""

    def __init__(self, world: StateWorld, stage: str, replica: int) -> None:
        super().__init__(world, stage, replica)
        self.follower: Follower | None = None
        self._coming: set[int] = set()  # partitions that are ours and not read yet
        self._leaving: list[tuple[int, Callable[[], None]]] = []
        self._heard: set[int] = set()  # partitions whose news come here
        self._full: set[int] = set()  # of which something waits for room

    def begin(self) -> None:
        for partition in self.world.groups.of(self.stage, self.replica):
            self.assign(partition)

    def assign(self, partition: int) -> None:
        """Take over a partition, once the version logs were read to their ends."""
        if partition in self.positions or partition in self._coming:
            return
        self._coming.add(partition)
        committed, note = self.world.broker.own(self.stage, partition, self.incarnation)
        if partition not in self._heard:
            self._heard.add(partition)
            self.world.subscribe(self, (self.topic, partition), partial(self.poll, partition))
        load = partial(self._load, partition, committed, note)
        if self.follower is None:
            load()
        else:
            self.follower.read_to_ends(load)

    def _load(self, partition: int, committed: int, note: str) -> None:
        if partition in self._coming and not self.lacks(partition, committed or None):
            self._coming.discard(partition)
            self.remember(partition, committed, note)
            self.positions[partition] = committed
            self.after(self.world.latency(), partial(self.poll, partition))

    def lacks(self, partition: int, position: int | None) -> bool:
        """Whether the partition does not have what comes next: it is let go, and not taken again."""
        if not self.world.lacks(self, (self.topic, partition), position):
            return False
        self.revoke(partition)
        return True

    def remember(self, partition: int, committed: int, note: str) -> None:
        raise NotImplementedError

    def poll(self, partition: int) -> None:
        raise NotImplementedError

    def revoke(self, partition: int) -> None:
        self._coming.discard(partition)
        self._full.discard(partition)
        if self.positions.pop(partition, None) is not None:
            self.forget(partition)

    def forget(self, partition: int) -> None:
        raise NotImplementedError

    def let_go(self, partition: int, then: Callable[[], None]) -> None:
        self.revoke(partition)
        then()

    def ousted(self) -> None:
        """Learn that partitions have moved on; or that another process has this one's place, which ends it."""
        if self.world.is_replaced(self):
            self.fenced()
            return
        ours = self.world.groups.of(self.stage, self.replica)
        for partition in (*self.positions, *self._coming):
            # What went to another replica and came back before this one has heard of it begins anew, too.
            if partition not in ours or self.world.broker.owner(self.stage, partition) != self.incarnation:
                self.revoke(partition)
        for partition in ours:
            self.assign(partition)

    @property
    def has(self) -> set[int]:
        return set(self.positions)
