"""The gate behind stateful stages, as a process: the gate that ships, over a run's logs.

What it releases is noted with all that it rests on.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from spillway.agents.core.gate import GATE
from spillway.agents.run.gate_context import POLL_SECONDS, GateContext, GateTopics
from spillway.agents.sim.faults.processes.living import DEAD_LETTERS, Replica, report_of
from spillway.agents.sim.faults.processes.ports import ProcessClock, RunInputs, RunSpans, positions_of
from spillway.agents.sim.faults.world.records import EGRESS, OUTCOMES, Record, arrival
from spillway.agents.sim.faults.world.world import Told
from spillway.lineage.errors import AbortedError, FencedError, SilentError
from spillway.lineage.message import PREDICTION
from spillway.lineage.ports import Outgoing, PulledInput, Transactions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from spillway.agents.core.outcomes import Release
    from spillway.agents.core.request import Delivery
    from spillway.agents.run.gate import Gate
    from spillway.agents.sim.faults.world.records import Arrival
    from spillway.agents.sim.faults.world.world import StateWorld
    from spillway.lineage.ports import Commit, PulledOwner

ABORTED, UNKNOWN = "aborted", "of unknown result"
_CHUNK: Final = 8  # records of a partition at once


class RunPulledInput(PulledInput):
    """A gate's partitions, as the run's groups deal them; they come and go while it takes."""

    def __init__(self, process: GateProcess) -> None:
        self._process, self._world = process, process.world
        self.dealt: frozenset[int] = frozenset()
        self._mine: frozenset[int] = frozenset()
        self._deals: list[tuple[frozenset[int], Callable[[], object]]] = []
        self._reads: dict[int, int] = {}
        self._paused = False
        self.fresh = asyncio.Event()
        self._owner: PulledOwner

    def deal(self, partitions: Iterable[int], then: Callable[[], object] = bool) -> None:
        self.dealt = frozenset(partitions)
        self._deals.append((self.dealt, then))
        self.fresh.set()

    async def join(self, owner: PulledOwner) -> None:
        self._owner = owner
        for partition in range(self._world.scenario.partitions):
            self._world.subscribe(self._process, (OUTCOMES, partition), self.fresh.set)

    async def take(self, most: int, within: float) -> list[Any]:
        await self._heed()
        found = self._some(most)
        if not found:
            self.fresh.clear()
            try:
                await asyncio.wait_for(self.fresh.wait(), within)
            except TimeoutError:
                return []
            await self._heed()
            found = self._some(most)
        return found

    async def _heed(self) -> None:
        while self._deals:
            partitions, then = self._deals.pop(0)
            # What went to another replica and came back before this one has heard of it begins anew, too.
            broker, process = self._world.broker, self._process
            kept = {p for p in self._mine & partitions if broker.owner(GATE, p) == process.incarnation}
            gone = self._mine - kept
            for partition in gone:
                self._reads.pop(partition, None)
            if gone:
                await self._owner.revoked(gone)
            then()
            self._mine = partitions
            for partition in partitions - kept:
                self._world.claim(process, partition)
            self._reads |= await self._owner.assigned(partitions - kept)

    def _some(self, most: int) -> list[Arrival]:
        found: list[Arrival] = []
        for partition, position in sorted(self._reads.items()):
            place, bounds = (OUTCOMES, partition), self._world.broker.bounds((OUTCOMES, partition))
            if not bounds.start <= position <= bounds.end:
                start = self._owner.out_of_range(partition, position, bounds)
                del self._reads[partition]
                if start is not None:
                    self._reads[partition] = start
            elif not self._paused:
                some = [arrival(place, one) for one in islice(self._world.broker.read(place, position), _CHUNK)]
                found += some
                self._reads[partition] = some[-1].offset + 1 if some else position
        return found[:most]

    def pause(self) -> None:
        if not self._paused:
            self._world.result.count("gate full")
        self._paused = True

    def resume(self) -> None:
        self._paused = False

    async def read_on(self, starts: Mapping[int, int]) -> None:
        self._reads = dict(starts)

    async def positions(self, partitions: Iterable[int]) -> dict[int, Commit]:
        await asyncio.sleep(self._world.latency())
        return positions_of(self._world, self._process, partitions)

    @property
    def read_up(self) -> bool:
        broker = self._world.broker
        return not self._deals and all(
            next(broker.read((OUTCOMES, partition), position), None) is None
            for partition, position in self._reads.items()
        )

    async def close(self, *, leave: bool) -> None:
        """Nothing: a replica of a run is killed."""


class RunTransactions(Transactions):
    """A gate's transactions, which may break."""

    def __init__(self, process: GateProcess) -> None:
        self._process, self._broker = process, process.world.broker
        self._producer: Any = None
        self.breaks = ""  # what becomes of the next one: aborted, or unknown

    async def open(self) -> None:
        self._producer = self._broker.producer(f"{GATE}.{self._process.replica}")

    async def write(self, records: Sequence[Outgoing], offsets: Mapping[int, Commit]) -> list[tuple[int, int]]:
        process, world = self._process, self._process.world
        process.point("outputs.before")
        await asyncio.sleep(world.latency())
        for topic, partition, _, record, _ in records:
            self._broker.produce(self._producer, (topic, partition), record)  # type: ignore[arg-type]
        await asyncio.sleep(world.latency())
        process.point("manifest.before")
        breaks, self.breaks = self.breaks, ""
        if breaks:
            world.result.count(f"gate's transaction {breaks}")
        if breaks == ABORTED:
            self._broker.abort(self._producer)
            raise AbortedError("the transaction is aborted")
        places = {partition: (commit.offset, commit.metadata) for partition, commit in offsets.items()}
        try:
            self._broker.finish(self._producer, GATE, process.incarnation, places)
        except FencedError:  # the producer, as the next line says, or else the group's member
            self._broker.abort(self._producer)
            process.after(world.latency(), process.ousted)  # its next heartbeat tells
            raise AbortedError("the group refuses the offsets") from None
        if breaks == UNKNOWN:
            raise SilentError("nothing is heard of the transaction")
        process.point("manifest.after")
        await asyncio.sleep(world.latency())
        written: Any = [record.value for record in records]
        return [(one.offset, round(one.appended * 1000)) for one in written]

    async def hold(self, topic: str) -> None:
        raise NotImplementedError(f"a run ousts no gate from its group: {topic}")


class RunWire:
    """Makes deliveries of a run's reports, and its records of releases."""

    def read(self, record: Any) -> Delivery:
        return report_of(record.partition, record.record)

    envelope = read

    def again(self, _fetch: Any, record: Any) -> tuple[Any, None]:
        return self.read(record).payload, None

    def released(self, record: Any) -> tuple[str, float]:
        return record.record.request_id, record.record.sent

    def message(self, release: Release) -> tuple[Any, tuple[()]]:
        outcome, source = release.outcome, release.source
        told = outcome.outputs if outcome.kind == PREDICTION else outcome.reason
        body = Told(release.request_id, outcome.kind, told, release.offsets)
        return Record(release.request_id, body, source.sent, source.deadline, source.hop), ()

    def letter(self, unusable: Any) -> tuple[bytes, tuple[()]]:
        raise NotImplementedError(f"a run's reports can all be read: {unusable}")


class Recorder:
    """Counts nothing."""

    def __init__(self) -> None:
        self.received = self.aborted = 0
        self.duplicates: Callable[[], int] = int
        self.held: Callable[[], int] = int
        self.committed: dict[int, int] = {}

    def accepted(self, way: float) -> None: ...

    def released(self, now: float, releases: Sequence[Release], seconds: float, gathered: float) -> None: ...

    def transferred(self, now: float, ways: Sequence[float]) -> None: ...

    def wrote_letters(self, reasons: Sequence[str]) -> None: ...

    def report_waits(self, waits: Callable[[], frozenset[int]]) -> None: ...


class GateProcess(Replica):
    """One incarnation of one replica of the gate."""

    _gate: Gate | None = None

    def __init__(self, world: StateWorld, replica: int) -> None:
        self._changed = False
        super().__init__(world, GATE, replica)

    async def _serve(self) -> None:
        world, scenario = self.world, self.world.scenario
        places = world.shards_of(world.graph.rests_on(None))
        durability = self._follow(scenario.guards.gate_logs, places, self._logs_changed)
        self._input, self._transactions, spans = RunPulledInput(self), RunTransactions(self), RunSpans(world)
        context = GateContext(
            name=f"{GATE}.{self.replica}",
            topics=GateTopics(OUTCOMES, EGRESS, DEAD_LETTERS),
            input=self._input,
            transactions=self._transactions,
            spans=spans,
            clock=ProcessClock(self),
            sleep=asyncio.sleep,
            begin=_none_is_long,
            reread=lambda wanted: asyncio.ensure_future(spans.pick(OUTCOMES, wanted)),
            wire=RunWire(),  # type: ignore[arg-type]
            inputs=RunInputs(self, OUTCOMES),
            recorder=Recorder(),
            core=lambda: scenario.guards.gate(
                world.graph, sinks=scenario.topology.sinks, durability=durability, held_limit=scenario.held_limit
            ),
            versions=self if places else None,
            held_poll=POLL_SECONDS,  # versions end a wait in `take`
        )
        gate = scenario.guards.gate_driver(context)
        await gate.start()
        self._input.deal(world.groups.of(GATE, self.replica))
        self._gate = gate
        try:
            await gate.run(lambda: False)
        except FencedError:
            self.kill()
            world.ended(self)

    # What it hears of versions ---------------------------------------------------------------------------------

    def _logs_changed(self) -> None:
        self._changed = True
        self._input.fresh.set()

    def news(self) -> bool:
        changed, self._changed = self._changed, False
        return changed

    async def read_to_ends(self) -> None:
        await self._read_logs()

    # For the run -----------------------------------------------------------------------------------------------

    @property
    def breaks(self) -> str:
        return self._transactions.breaks

    @breaks.setter
    def breaks(self, what: str) -> None:
        if self._gate is not None:
            self._transactions.breaks = what

    def deal(self, partitions: Iterable[int], then: Callable[[], object] = bool) -> None:
        if self._gate is None:
            then()  # it asks the group when it has started
        else:
            self._input.deal(partitions, then)

    @property
    def mine(self) -> frozenset[int]:
        return frozenset() if self._gate is None else self._input.dealt

    @property
    def has(self) -> set[int]:
        return set() if self._gate is None else set(self._gate.partitions)

    def commit(self) -> None:
        """Nothing: it does when it is time."""

    @property
    def idle(self) -> bool:
        gate = self._gate
        if gate is None or not gate.idle or not self._input.read_up:
            return False
        return self._has_read


def _none_is_long(function: Callable[[], Any]) -> Any:
    raise NotImplementedError(f"a run's outcomes are short: {function}")
