"""The driver of one reign: a `StatefulCore`, the model, the copies, and what is sent while the lease allows it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, cast

from spillway.agents.core.actions import Failed
from spillway.agents.core.batching import Batcher
from spillway.agents.core.policies import POLICIES, make
from spillway.agents.core.policies.adaptive import HIGH
from spillway.agents.core.policies.pard import Pard
from spillway.agents.core.policies.selection import select
from spillway.agents.core.policy import StageView
from spillway.agents.sim.faults.processes.living import again, item_of, result_of, told
from spillway.agents.sim.faults.shard.host import Logged, Outgoing
from spillway.agents.sim.faults.shard.reading import Feed
from spillway.agents.sim.faults.world import model
from spillway.agents.sim.faults.world.records import INGRESS, keyed, state_of, versions_of
from spillway.agents.sim.faults.world.world import Loaded, Made
from spillway.checkpoint.chunks import decode_key, encode_key, expendable
from spillway.checkpoint.reign import Copy, Seal, Write
from spillway.lineage import reasons
from spillway.lineage.errors import CheckpointError
from spillway.lineage.marks import Mark, Version
from spillway.lineage.replication import ChunkKey, Contents, Manifest
from spillway.lineage.values.replication import ReplicationDecoder, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spillway.agents.core.actions import Emit, Result
    from spillway.agents.core.batching import Batch
    from spillway.agents.core.request import Request
    from spillway.agents.core.stateful_stage import StatefulCore
    from spillway.agents.memory.broker import Place
    from spillway.agents.sim.faults.shard.host import Host
    from spillway.agents.sim.faults.shard.reading import Read
    from spillway.agents.sim.faults.world.model import State
    from spillway.agents.sim.faults.world.records import Record
    from spillway.agents.sim.faults.world.records import Record as Sent
    from spillway.agents.sim.faults.world.world import StateWorld
    from spillway.checkpoint.logs import Logs
    from spillway.lineage.replication import Batch as Recorded
    from spillway.lineage.replication import InputPlace, Link
    from spillway.lineage.replication import InputRecord as Covered


_DECODER = ReplicationDecoder()


class Written(Protocol):
    """The reign whose versions are written."""

    process: Host
    world: StateWorld
    place: Place
    epoch: int
    base: Version
    chain: tuple[Link, ...]
    core: StatefulCore
    logs: Logs
    outgoing: Outgoing

    def send(self, place: Place, record: Record, acked: Callable[[], None], takes: float = 0.0) -> None:
        """Send a record, if and when the lease allows it."""

    def completed(self, version: Version) -> None:
        """Note that a version's manifest is acknowledged."""


class Writer:
    """The versions of one reign; one at a time."""

    def __init__(self, primary: Written) -> None:
        self.primary = primary
        self.world = primary.world
        self._held: dict[int, tuple[ChunkKey, str]] = {}  # by part: what this epoch has written
        self._needed: dict[Version, set[ChunkKey]] = {}
        self._state_n = primary.base.n
        self._order: Write[Any] | None = None
        self._missing = 0  # chunks that are not acknowledged
        self._sealed = False
        self._outputs: list[tuple[Place, Record]] = []
        self._chunks: list[tuple[Place, Record]] = []

    def begin(self, order: Write[Any]) -> None:
        primary, mode = self.primary, self.world.scenario.mode
        self._order, self._sealed, self._chunks = order, False, []
        self.world.result.count("written")
        self.world.result.counts["coalesced"] = self.world.result.counts.get("coalesced", 0) + len(order.batches) - 1
        primary.process.point("chunks.before")
        if order.what is not None:
            self._state_n = order.state_n
            for part, value in enumerate(order.what.parts):
                if part not in self._held or self._held[part][1] != value:
                    epoch = self.world.scenario.guards.chunk_epoch(order.version.epoch)
                    key = ChunkKey(epoch, order.version.n, part)
                    self._held[part] = key, value
                    self._chunks.append((state_of(primary.place), keyed(encode_key(key), value)))
        self._needed[order.version] = {key for key, _ in self._held.values()}
        self._outputs = []
        if mode.holds:
            self._outputs = [told(e, *primary.place, primary.epoch) for e in primary.core.withheld(order.version)]
        self._missing = 0
        if not mode.transacts:
            self._missing = len(self._chunks)
            for place, record in self._chunks:
                seconds = self.world.random.expovariate(1.0) * self.world.scenario.write_seconds
                primary.send(place, record, partial(self._chunk_acked, order), seconds)
        self._look()

    def sealed(self) -> None:
        self._sealed = True
        self.primary.process.point("outputs.after")
        self._look()

    def _chunk_acked(self, order: Write[Any]) -> None:
        if order is self._order:
            self._missing -= 1
            if not self._missing:
                self.primary.process.point("chunks.after")
            self._look()

    def _look(self) -> None:
        """Append the manifest, once all else is there."""
        order, primary = self._order, self.primary
        if order is None or self._missing or not self._sealed:
            return
        self._order = None
        primary.process.point("manifest.before")
        manifest = Manifest(order.version, primary.chain, order.requires, primary.process.name)
        transacts = self.world.scenario.mode.transacts
        contents = _sent(Contents(batches=order.batches, inputs=order.inputs))
        if not transacts:
            contents = replace(contents, outputs=tuple(self._outputs))  # type: ignore[arg-type]
        named = tuple((encode_key(key), value) for _, (key, value) in sorted(self._held.items()))
        body = Logged(manifest, contents, named, self._state_n)
        record = keyed(self.world.scenario.guards.version_key(manifest), body)
        done = partial(self._completed, order.version)
        last = (versions_of(primary.place), record)
        if transacts:
            primary.outgoing.send((last, *self._chunks, *self._outputs), done)
        else:
            primary.send(*last, done)

    def _completed(self, version: Version) -> None:
        self.primary.process.point("manifest.after")
        self.primary.completed(version)

    # What may go -----------------------------------------------------------------------------------------------

    def tidy(self) -> None:
        """Tombstone what the newest durable version has made superfluous (rule 4)."""
        primary = self.primary
        durable: Version = self.world.scenario.guards.keeps(primary.logs, primary.place)
        if durable.epoch != primary.epoch or durable not in self._needed:
            return
        retention = primary.process.standby.retention
        going = retention.obsolete(primary.logs.log(primary.place).history, durable)
        if going:
            primary.process.point("tidy")
        for name in going:
            retention.tombstoned(name)
            primary.send(versions_of(primary.place), keyed(name, None), _nothing)
        self._needed = {version: keys for version, keys in self._needed.items() if version.n >= durable.n}
        present = [decode_key(key) for key in primary.process.standby.chunks]
        for key in expendable(present, primary.epoch, durable, self._needed):
            primary.process.standby.chunks.pop(encode_key(key), None)
            primary.send(state_of(primary.place), keyed(encode_key(key), None), _nothing)


def _sent(contents: Contents) -> Contents:
    """Give what a reader gets of what a version consists of. Raises WireError for what cannot be written."""
    return _DECODER.contents(encode(contents))


def _nothing() -> None:
    """Nothing follows from it."""


class Done(NamedTuple):
    """A batch that was computed."""

    results: list[Result]
    after: model.State
    changes: bool
    made: Made


def computed(world: StateWorld, place: Place, state: model.State, batch: Batch) -> Done:
    stage, scenario = place[0], world.scenario
    nonce = 0 if scenario.deterministic else world.random.getrandbits(32)
    keys = scenario.keys_of(stage)
    results: list[Result] = []
    good: list[Request] = []
    items: list[model.Item] = []
    for request in batch.requests:
        if model.raises(stage, request.request_id, scenario.poison):
            results.append(Failed(reasons.MODEL_RAISED, "scripted"))
        elif scenario.chance and world.random.random() < scenario.chance:
            results.append(Failed(reasons.MODEL_RAISED, "by chance"))
        else:
            good.append(request)
            items.append(item_of(request))
            results.append(result_of(world, stage, model.compute(stage, state, items[-1], nonce, keys)))
    after = model.update(stage, state, items, nonce, keys)
    taken = tuple(
        (request.request_id, tuple((part.partition, part.offset) for part in request.parts)) for request in good
    )
    changes = any(model.changes(stage, item) for item in items)
    return Done(results, after, changes, Made(state.digest, after.digest, taken, nonce))


def replayed(world: StateWorld, place: Place, state: State, base: Version, entry: Logged | None) -> State:
    """Give the state at `base`, from the copy that its entry names; a model that draws draws anew."""
    if entry is None or entry.state_n >= base.n:
        return state
    keys = world.scenario.keys_of(place[0])
    for batch in entry.contents.batches:
        if entry.state_n < batch.n <= base.n:
            world.result.count("replayed")
            nonce = 0 if world.scenario.deterministic else world.random.getrandbits(32)
            state = model.update(place[0], state, items_of(world, place, batch.taken), nonce, keys)
    return state


def items_of(world: StateWorld, place: Place, taken: Iterable[Covered]) -> list[model.Item]:
    """Give the requests of a batch as the model saw them: those whose records stand together are one.

    Raises CheckpointError where the input does not have them any more; the shard cannot go on then.
    """
    stage, shards = place[0], world.scenario.shards_of(place[0])
    topic = stage if world.graph.predecessors[stage] else INGRESS
    items: list[tuple[str, list[tuple[str, str]]]] = []
    for one in taken:
        record = next(world.broker.read((topic, one.partition), one.offset, one.offset + 1), None)
        if record is None:
            world.result.stopped |= {(stage, p) for p in range(world.scenario.partitions) if p % shards == place[1]}
            raise CheckpointError(f"{one} of {topic} is gone, and {stage} cannot be computed again without it")
        if not items or items[-1][0] != one.request:
            items.append((one.request, []))
        sender = record.hop.stage if record.hop else ""
        if not (record.lost or model.unreadable(stage, sender, one.request, world.scenario.poison)):
            items[-1][1].append((sender, record.body))
    return [model.Item(request, tuple(sorted(parts))) for request, parts in items]


_PERIOD = 1.0  # seconds between two ticks


class HighBudgetFirst(Pard):
    """What came last first: the order that differs most from that of the log."""

    __slots__ = ()
    order: ClassVar[str] = HIGH


_POLICIES = POLICIES | {"hbf": HighBudgetFirst}


class Primary:
    """One member's reign, from its Load until it is dropped."""

    def __init__(self, process: Host, epoch: int, base: Version, state: State, entry: Logged | None) -> None:
        """`entry`: the base's, None for the initial state. `state`: what its chunks make."""
        world, scenario = process.world, process.world.scenario
        guards, graph, stage = scenario.guards, process.world.graph, process.stage
        self.process, self.world, self.place, self.epoch, self.base = process, world, process.place, epoch, base
        self.dropped = False
        selection = select(scenario.policy, _POLICIES)
        policy = make(selection, StageView(stage=stage, replica=process.replica, instances=1))
        batcher = Batcher(policy, scenario.batch, 0.0, 1, world.duration)
        self.logs = process.follower.logs
        self.chain = self.logs.log(self.place).history.links
        self.reign = guards.reign(self.place, epoch, base, scenario.mode, scenario.every)
        record = self.reign.record
        self.reign.record = partial(self._recorded, record)  # type: ignore[method-assign]
        self.core = guards.stateful(
            graph,
            stage,
            batcher,
            reign=self.reign,
            logs=self.logs,
            rule=scenario.topology.rules.get(stage),
            **scenario.bounds,
        )
        self.feed = Feed(process, self.core)
        self.entry = entry
        self.state = replayed(world, self.place, state, base, entry)
        self.writer = Writer(self)
        self._next: State | None = None  # after the update that is due
        self.outgoing = Outgoing(process)
        self._busy = 0  # computations, updates and copies under way
        self._wake_at = float("inf")
        self._ticked = 0.0  # when, by the process's clock
        self._gave_way = False
        self._noted = base.n  # the newest version that the history has
        world.result.loaded.append(Loaded(self.place, base, self.state.digest, process.name, epoch))
        world.result.count("reigns")

    def begin(self) -> None:
        inputs: tuple[InputPlace, ...] = ()
        if self.entry is not None:
            inputs = self.entry.contents.inputs
            self._resend()
        self.feed.add(self.process.input.begin(self.core, inputs))
        self.logs_changed()

    def _resend(self) -> None:
        assert self.entry is not None  # the caller has looked
        outputs = self.entry.contents.outputs
        self.reign.resend(len(outputs))
        for one in outputs:
            place, record = cast("tuple[Place, Sent]", one)
            self.world.result.count("sent again")
            self.send(place, again(record), self._resent)

    def _resent(self) -> None:
        self.reign.resent()
        self._pump()

    def drop(self) -> None:
        self.dropped = self.outgoing.closed = True
        self.feed.stop()
        self.process.input.excuse(0)

    # What comes ------------------------------------------------------------------------------------------------

    def take(self, reads: list[Read]) -> None:
        if not self.dropped:
            self.feed.add(reads)
            self._pump()

    def logs_changed(self) -> None:
        if self.dropped:
            return
        self.core.durability_changed(self.process.now)
        self.process.input.durable(self.core.durable_places.values())
        self.writer.tidy()
        if not self._gave_way and (self.core.contaminated is not None or self.logs.rollback(self.place) is not None):
            self._gave_way = True
            self.world.result.count("contaminated")
            self.process.gives_way(self.epoch)
        self._pump()

    # What the core asks for ------------------------------------------------------------------------------------

    def _pump(self) -> None:
        if self.dropped:
            return
        self._do()
        while self.feed.deliver():
            self._do()
        self.process.input.excuse(self.core.held_by_joins)
        if self.process.input.waits and not len(self.feed):
            self.core.cover()
            self._do()

    def _do(self) -> None:
        self._note_drops()
        core, random = self.core, self.world.random
        for batch in core.take_runs():
            self.process.point("compute.before")
            seconds = self.world.duration(len(batch.requests)) * random.uniform(0.5, 2.0)
            self._later(seconds, partial(self._computed, batch, seconds))
        for _ in core.take_updates():
            self.process.point("update.before")
            seconds = random.uniform(0.0005, 0.01)
            self._later(seconds, partial(self._updated, seconds))
        for order in core.take_orders():
            if isinstance(order, Copy):
                self.process.point("copy.before")
                self._later(random.uniform(0.0005, 0.015), partial(self._copied, order.version, self.state.parts[:2]))
            elif isinstance(order, Write):
                self.writer.begin(order)
            elif isinstance(order, Seal):
                self.writer.sealed()
        for emit in core.take_emits():
            self.process.point("outputs.before")
            self.send(*told(emit, *self.place, self.epoch), partial(self._acked, emit))
        wake = core.next_wake(self.process.now)
        if wake is not None and wake < self._wake_at:
            self._wake_at = wake
            self.process.after(wake - self.process.now, self._advance)

    def _later(self, seconds: float, what: Callable[[], None]) -> None:
        self._busy += 1

        def come() -> None:
            self._busy -= 1
            if not self.dropped:
                what()

        self.process.after(seconds, come)

    def _advance(self) -> None:
        self._wake_at = float("inf")
        if not self.dropped:
            self.core.advance(self.process.now)
            self._pump()

    def _computed(self, batch: Batch, seconds: float) -> None:
        self.process.point("compute.after")
        done = computed(self.world, self.place, self.state, batch)
        self._note_drops()
        self.world.made(Mark(*self.place, self.reign.next), done.made)
        self._noted += 1
        self._next = done.after
        self.core.computed(self.process.now, batch, done.results, seconds, changes=done.changes)
        self._pump()

    def _recorded(self, record: Callable[..., None], batch: Recorded, *rest: object) -> None:
        self.world.result.batches[Mark(*self.place, self.reign.next)] = batch
        record(batch, *rest)

    def _note_drops(self) -> None:
        while self._noted < self.reign.recorded:
            self._noted += 1
            mark = Mark(*self.place, Version(self.epoch, self._noted))
            self.world.made(mark, Made(self.state.digest, self.state.digest, (), 0))

    def _updated(self, seconds: float) -> None:
        assert self._next is not None  # it was computed
        self.state = self._next
        self.process.point("update.after")
        self.core.updated(self.process.now, seconds)
        self._pump()

    def _copied(self, version: Version, first: tuple[str, ...]) -> None:
        self.process.point("copy.after")
        copy = model.State((*first, *self.state.parts[len(first) :]))
        self.core.copied(self.process.now, version, copy)
        self._pump()

    def completed(self, version: Version) -> None:
        self.core.completed(self.process.now, version)
        self._pump()

    def _acked(self, emit: Emit) -> None:
        self.process.point("ack")
        self.core.acked(emit)
        self._pump()

    # What is sent ----------------------------------------------------------------------------------------------

    def send(self, place: Place, record: Sent, acked: Callable[[], None], takes: float = 0.0) -> None:
        self.outgoing.send(((place, record),), acked, takes)

    def commit(self) -> None:
        """Commit what the newest durable version covers; once a period, tick."""
        if self.dropped:
            return
        if self.process.now - self._ticked >= _PERIOD:
            self._ticked = self.process.now
            self.core.tick(self._ticked, {})
            self._pump()
        for partition, (offset, _) in self.core.commits().items():
            self.process.after(self.world.latency(), partial(self.core.committed, partition, offset))

    @property
    def idle(self) -> bool:
        """Whether everything that was read is recorded, written and durable, and nobody is to take this one's place."""
        core = self.core
        if self._gave_way:
            return False
        return not (self._busy or self.outgoing.waits or core.waiting or core.depth or len(self.feed)) and core.settled
