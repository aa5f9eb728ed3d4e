"""One run of a case: the clients, the processes with what happens to them, and the end."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from spillway.agents.core.stage import DEATHS
from spillway.agents.memory.ports import ABORTED
from spillway.agents.memory.processes import AFTER, BEFORE
from spillway.agents.memory.records import kept
from spillway.agents.memory.world import START, Network
from spillway.agents.proof.pipelines.case import RESTARTS, Kind
from spillway.agents.proof.pipelines.models import VALUE, number_of, vector_of
from spillway.agents.proof.pipelines.watched import WatchedWorld
from spillway.agents.testing.conditions import Conditions, name_of
from spillway.agents.testing.front import Front
from spillway.agents.testing.gate import GateFront
from spillway.agents.testing.service import Service
from spillway.lineage import headers
from spillway.lineage.errors import BrokerError
from spillway.lineage.keys import partition_for
from spillway.lineage.ports import Outgoing
from spillway.lineage.trace import TraceContext
from spillway.producers.client.queries import GRACE, QueryMaker
from spillway.topology import ensembles, topics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spillway.agents.memory.processes import Process
    from spillway.agents.proof.pipelines.case import Case, Fault
    from spillway.agents.testing.service import Served, Slot
    from spillway.lineage.ports import Record
    from spillway.topology.spec import StageSpec

_LOOK: Final = 0.25  # seconds between two looks whether all is done
_CALM: Final = 1.5  # seconds that a run goes on when all is done: what comes twice comes then
_MOST: Final = 90.0  # seconds after the last fault until which all is done
_LEFT: Final = 30.0  # the same where an input has lost records: longer than joins wait
_STRIKES: Final = 3.0  # seconds from the start in which processes die at calls of ports, and workers at batches
_BESIDE: Final = ("copies", "parity")  # workers that run a stage's batches beside its own
_STRAGGLES: Final = 1.0  # seconds more that a batch takes at a worker that is slow


class _Drawn(Conditions):
    """How long batches take in a case, and at which of them workers die."""

    def __init__(self, play: Play) -> None:
        super().__init__(play.pipeline, play.random, kill=(), slow=(), real_time=False)
        self._play, self._case = play, play.case

    def duration(self, spec: StageSpec, lane: str = "") -> Callable[[int], float]:  # noqa: ARG002 - all lanes are alike
        base = self._case.durations.get(spec.name, 0.001)
        return lambda size: (
            base * (0.5 + 0.5 * size) * (1.0 + self.random.random())
            + _STRAGGLES * self._play.strikes(self._case.stragglers)
        )

    def dies(self, name: str) -> bool:  # noqa: ARG002 - all workers are alike
        return self._play.strikes(self._case.worker_deaths)


class Play(Service):
    """Runs a case. The same case and seed make the same run."""

    def __init__(self, case: Case, seed: int) -> None:
        self.case, self.proof = case, WatchedWorld(seed, {}, gaps=case.gaps)
        self.pipeline = case.pipeline()
        super().__init__(
            self.pipeline,
            seed=seed,
            replicas=case.replicas,
            make_world=self._world,
            payload_bytes=case.payload_bytes,
            held_limit=case.held_limit,
        )
        self.proof.executor, self.proof.in_flight = case.executor, case.in_flight
        self.random = self.proof.random
        self._workshop.conditions = _Drawn(self)
        self.proof.network = Network(slow=case.slow)
        self._ahead = {slot: case.skew * self.random.uniform(-1.0, 1.0) for slot in self.slots}
        self._maker = QueryMaker(self.pipeline, slo=None, grace=GRACE, clock=(lambda: self.proof.now,) * 2)
        self.all_served: list[Served] = []
        self.asked: dict[str, int] = {}  # queries, with their partitions
        self.unreadable: set[str] = set()  # those of them whose values are none
        self.struck: Counter[str] = Counter()
        self._epochs: Counter[str] = Counter()  # of ensembles, by stage: how often they have changed
        self.errors: list[BaseException] = []  # that ended a process and should not have
        self.failed: list[BaseException] = []  # those, and what callbacks and tasks have raised
        self.ends = START  # when nothing is to happen any more
        self.overread = 0  # how often a gate has read without room
        self.rested = False  # whether all was done at the end

    def run(self) -> Play:
        self.proof.run_until(self._play())
        return self

    @property
    def digest(self) -> str:
        """What came of the run, in short: another run of it has the same."""
        broker, made = self.proof.watched, sha256()
        for place, record in broker.order:
            made.update(repr((place, record.offset, record.appended, record.key, record.value)).encode())
        made.update(repr((broker.commits, self.struck)).encode())
        return made.hexdigest()

    @property
    def seconds(self) -> float:
        return self.proof.now - START

    @property
    def fatal(self) -> set[str]:
        """Return the stages of which so many workers have died that a query may have failed for it."""
        died: Counter[str] = Counter()
        for stage in self.pipeline.spec.stages:
            for lane in (*(stage.lanes or ("",)), *_BESIDE):
                died[stage.name] += self.deaths.get(name_of(stage.name, lane), 0)
        return {stage for stage, deaths in died.items() if deaths >= DEATHS}

    # The run ---------------------------------------------------------------------------------------------------

    async def _play(self) -> None:
        self._schedule_queries()
        for fault in self.case.faults:
            self._schedule(fault)
        self.start()
        calm = 0.0
        while calm < _CALM:
            await asyncio.sleep(_LOOK)
            self.failed = [*self.errors, *self.proof.loop.failures, *self.proof.loop.unheard]
            if self.failed:
                return
            if self.proof.now > self.ends + (_LEFT if self.case.loses else _MOST):
                return
            done = self.proof.now > self.ends and self._is_done()
            calm = calm + _LOOK if done else 0.0
        self.rested = True

    def _is_done(self) -> bool:
        broker, stopped = self.proof.broker, self.stopped
        return (
            all(
                broker.committed(group.name, partition)[0] >= broker.end((group.topic, partition))
                or (name, partition) in stopped
                for name, group in self.groups.items()
                for partition in range(self.proof.partitions[group.topic])
            )
            and not self.left()
        )

    def left(self) -> dict[str, dict[str, int]]:
        """Return what the processes of now have in their tables, by their names; none where nothing is under way."""
        return {f"{name}.{replica}": left for (name, replica), served in self._serving.items() if (left := served.left)}

    @property
    def stopped(self) -> set[tuple[str, int]]:
        """What partitions of which stages, or of the gate, were said to have lost what comes next."""
        return {(served.metrics.stage, partition) for served in self.all_served for partition in served.metrics.stopped}

    def _schedule_queries(self) -> None:
        when = START
        for number in range(self.case.queries):
            when += self.random.expovariate(self.case.rate)
            self.at(when, partial(self._ask, f"q{number}"))
            if self.random.random() < self.case.repeats:
                self.at(when + self.random.uniform(0.0, 1.5), partial(self._ask, f"q{number}"))

    def at(self, when: float, what: Callable[[], None]) -> None:
        self.ends = max(self.ends, when)
        self.proof.at(when, what)

    def _ask(self, request_id: str) -> None:
        extra = {headers.ACCEPT: "application/json"} if self.random.random() < self.case.json else None
        trace = TraceContext(f"{self.random.getrandbits(128):032x}", f"{self.random.getrandbits(64):016x}")
        question = vector_of(number_of(request_id)) if self.case.vectors else request_id
        query = self._maker.prepare({VALUE: question}, None, self.case.deadline, request_id, None, trace, extra)
        name = self.pipeline.spec.name
        place = topics.ingress(name), partition_for(query.key, self.pipeline.spec.partitions)
        value = query.value
        poison = self.random.random() < self.case.poison
        if poison and self.random.random() < 0.5:  # noqa: PLR2004 (a share)
            self.proof.broker.append(place, kept(Outgoing(*place, None, b"nobody's", [])))
        elif poison and request_id not in self.asked:
            self.unreadable.add(request_id)
        if request_id in self.unreadable:
            value = b"no query"
        self.asked[request_id] = place[1]
        self.proof.broker.append(place, kept(Outgoing(*place, query.key, value, query.headers)))

    # Processes -------------------------------------------------------------------------------------------------

    def _world(self, _seed: int, partitions: dict[str, int]) -> WatchedWorld:
        self.proof.partitions = partitions
        return self.proof

    def _process(self, slot: Slot) -> Process:
        process = self.proof.process(f"{slot[0]}.{slot[1]}", ahead=self._ahead[slot])
        process.strikes = partial(self._strike, slot)
        return process

    def _served(self, slot: Slot, process: Process) -> Served:
        served = super()._served(slot, process)
        if isinstance(served, GateFront):
            served.transactions.breaks = self._breaks
            self._watch_reading(served)
        self.all_served.append(served)
        return served

    def _watch_reading(self, served: GateFront) -> None:
        """Record where a gate that has no room reads on: but for what comes with partitions that are new."""
        take, assigned, came = served.input.take, served.gate.assigned, [0]

        async def watched_assigned(partitions: frozenset[int]) -> dict[int, int]:
            came[0] += 1
            return await assigned(partitions)

        async def watched_take(most: int, within: float) -> Sequence[Record]:
            full, before = within > 0 and not served.core.room, came[0]
            records = await take(most, within)
            self.overread += bool(full and records and came[0] == before)
            return records

        served.input.take = watched_take  # type: ignore[method-assign]
        served.gate.assigned = watched_assigned  # type: ignore[method-assign]

    def strikes(self, share: float) -> bool:
        """Draw whether what happens in such a share of cases happens now."""
        return bool(share) and self.proof.now <= START + _STRIKES and self.random.random() < share

    def _strike(self, slot: Slot, process: Process) -> str:
        if self.proof.now > START + _STRIKES or self.random.random() >= self.case.kills:
            return ""
        self.proof.at(self.proof.now, partial(self._died_at_call, slot, process))
        return self.random.choice((BEFORE, AFTER))

    def _died_at_call(self, slot: Slot, process: Process) -> None:
        self.struck["dies at a call"] += 1
        if self._processes[slot] is process:
            self._died(slot)

    def _breaks(self) -> str:
        if self.proof.now > START + _STRIKES or self.random.random() >= self.case.breaks:
            return ""
        self.struck["transaction breaks"] += 1
        return self.random.choice((ABORTED, BEFORE, AFTER))

    def _worker_died(self, name: str) -> None:
        super()._worker_died(name)
        self.struck[Kind.WORKER.value] += 1

    def _died(self, slot: Slot) -> None:
        self.deaths[slot[0]] += 1
        self.at(self.proof.now + self.random.choice(RESTARTS), partial(self._start, slot))

    def _ended(self, slot: Slot, process: Process, task: asyncio.Task[None]) -> None:
        if not process.alive or task.cancelled():
            return
        process.kill()
        error = task.exception()
        if error is not None and not isinstance(error, BrokerError):
            self.errors.append(error)
        if self._processes[slot] is process:
            self._died(slot)

    # What goes wrong -------------------------------------------------------------------------------------------

    def _schedule(self, fault: Fault) -> None:
        at = START + fault.at
        if fault.kind is Kind.AWAY:
            self.proof.away(at, at + fault.seconds)
            self.struck[fault.kind.value] += 1
            self.ends = max(self.ends, at + fault.seconds)
        elif fault.kind is Kind.LATE:
            self.proof.late(f"{fault.name}.{fault.replica}", at, at + fault.seconds)
            self.struck[fault.kind.value] += 1
            self.ends = max(self.ends, at + fault.seconds)
        elif fault.kind is Kind.RETAIN:
            self.at(at, partial(self._lose_input, fault))
        elif fault.kind is Kind.WORKER:
            self.at(at, partial(self._workshop.kill, fault.name))
        elif fault.kind is Kind.MEMBERS:
            self.at(at, partial(self._change_members, fault.name))
        else:
            self.at(at, partial(self._strike_process, fault))

    def _strike_process(self, fault: Fault) -> None:
        slot = fault.name, fault.replica
        process = self._processes[slot]
        if not process.alive or process.withheld is not None or slot not in self._serving:
            return
        self.struck[fault.kind.value] += 1
        if fault.kind is Kind.KILL:
            process.kill()
            self._died(slot)
        elif fault.kind is Kind.LEAVE:
            process.start(self._leave(self._serving[slot]))
        elif fault.kind is Kind.SLOW:
            for wire in process.wires:
                wire.slow = fault.seconds / 4  # type: ignore[attr-defined] # a process has no other links
        else:
            process.stop()
            self.at(self.proof.now + fault.seconds, lambda: process.go_on() if process.alive else None)
            if fault.kind is Kind.REPLACE:
                self._died(slot)

    @staticmethod
    async def _leave(served: Served) -> None:
        served.leave()

    def _change_members(self, stage: str) -> None:
        """Take a member from an ensemble in all fronts, or put all back, as the table of sizes would say."""
        frame, spec = self.pipeline.frame, self.pipeline.spec.stage(stage)
        whole = spec.ensemble
        assert whole is not None  # it was drawn so
        self._epochs[stage] += 1
        if self._epochs[stage] % 2 and len(whole.members) > 1:
            gone = self.random.choice(list(whole.members))
            members = {name: each for name, each in whole.members.items() if name != gone}
            whole = whole.model_copy(update={"members": members})
        told = ensembles.Served(whole, "prover", "", self.proof.now, self._epochs[stage], frame, "")
        for slot, front in self._serving.items():
            if slot[0] == stage and self._processes[slot].alive and isinstance(front, Front) and front.begun:
                self.struck[Kind.MEMBERS.value] += 1
                self._processes[slot].start(self._follow(front, told))

    @staticmethod
    async def _follow(front: Front, told: ensembles.Served) -> None:
        front.follow(told)

    def _lose_input(self, fault: Fault) -> None:
        """Delete what a reader has not committed from its input.

        Where it has committed nothing it begins at what is there, and nobody knows that there was more.
        """
        topic, broker = self.groups[fault.name].topic, self.proof.broker
        for partition in range(self.proof.partitions[topic]):
            committed, _ = broker.committed(self.groups[fault.name].name, partition)
            place, end = (topic, partition), broker.end((topic, partition))
            if 0 < committed < end and not broker.is_open(place):
                self.struck[fault.kind.value] += 1
                broker.delete_before(place, self.random.randint(committed + 1, end))
                return
