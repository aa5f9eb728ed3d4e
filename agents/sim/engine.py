"""The event loop in virtual time: the batcher and the policies of the live stages, with durations in place of models.

Events are the ends of batches, the wake-ups that a batcher asks for, messages under way, and the synchronisation of
the policies; the arrivals are a list. Everything is deterministic: events at the same instant happen in the order in
which they were planned, after the arrivals of that instant.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from itertools import chain, cycle
from random import Random
from typing import TYPE_CHECKING, Any

from spillway.agents.core.batching import Batcher
from spillway.agents.core.estimates.observed import Transfer
from spillway.agents.core.join_rules import COMPLETE, OPEN, TABLES, Rule, Verdict
from spillway.agents.core.policies import make
from spillway.agents.core.policy import StageState
from spillway.agents.core.request import Path, Request
from spillway.agents.sim.choices import Crossroads
from spillway.lineage.metric_names import GATE
from spillway.producers.report import DROPPED, PREDICTION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from spillway.agents.core.batching import Batch
    from spillway.agents.core.policy import Policy, StageView
    from spillway.agents.sim.observe import Observer
    from spillway.agents.sim.plan import Plan, StagePlan


NEVER = float("inf")
NO_PATH: Path = {}  # never changed in place: a choice makes a new one


class Traveller(Request):
    """A request on its way: one object per branch, reused from stage to stage."""

    __slots__ = ("index",)

    def __init__(self, index: int, partition: int, sent: float, deadline: float, path: Path = NO_PATH) -> None:
        self.request_id = ""
        self.index = index
        self.partition = partition
        self.sent = self.arrived = sent
        self.deadline = deadline
        self.parts = ()
        self.offline = False
        self.path = path

    def twin(self) -> Traveller:
        return Traveller(self.index, self.partition, self.sent, self.deadline, self.path)


class Station(Batcher):
    """One queue of a stage, with the instances that it feeds."""

    def __init__(self, run: StageRun, policy: Policy) -> None:
        plan = run.plan
        super().__init__(policy, plan.batch, plan.delay, plan.instances, run.durations.__getitem__, plan.limits)
        self.run = run
        self.wakes = NEVER  # the earliest wake-up that is on its way


class StageRun:
    """One stage: its stations, where its results go, and what it did so far."""

    def __init__(self, plan: StagePlan, views: Iterable[StageView]) -> None:
        """`views`: what the policy of each queue sees."""
        self.plan = plan
        self.name = plan.name
        self.durations = [0.0, *(plan.duration(n) for n in range(1, plan.batch + 1))]
        self.shares = [0.0, *(seconds / n for n, seconds in enumerate(self.durations[1:], start=1))]
        self.stations = [Station(self, make(plan.policy, view)) for view in views]
        self.next: Callable[[], Station] = cycle(self.stations).__next__  # round-robin
        # By partition, the station that owns it; None where requests are dispatched in another way.
        self.owners = [self.stations[queue] for queue in plan.owners] if plan.owners else None
        self.successors: dict[str, StageRun] = {}
        # The only successor, where a result is handed over to it at once and nothing else is to be decided.
        self.single: StageRun | None = None
        self.batches = self.finished = self.dropped = 0
        self.queued = self.waited = self.executed = 0.0

    def station(self, partition: int) -> Station:
        """Say which queue the next request joins: its partition's owner, or the next in turn."""
        return self.next() if self.owners is None else self.owners[partition]


# Where the branches of a simulated request meet again: the joins, and the gate at the end.
#
# The decision is the live join's, from the same table. What the live one guards against does not happen here (copies,
# contradictions, senders that fall silent), so a branch is no more than a number here, and nothing times out.

_WAITING = Verdict.WAITING


class Meeting:
    """One place where several branches of a request are expected."""

    __slots__ = ("_open", "_table")

    def __init__(self, rule: Rule) -> None:
        self._table = TABLES[rule.mode, rule.on_loss]
        # By request: branches not heard of, whether one delivered, whether one was lost, whether it is closed.
        # Forgotten when all were heard.
        self._open: dict[int, list[int]] = {}

    def hear(self, index: int, expected: int, *, results: int = 0, losses: int = 0) -> Verdict:
        """Note that branches of request `index` delivered or were lost; say once that it is READY or LOST."""
        state = self._open.get(index)
        if state is None:
            state = self._open[index] = [expected, False, False, False]
        state[0] -= results + losses
        missing, _, _, closed = state
        if missing <= 0:
            del self._open[index]
        if closed:
            return Verdict.LATE
        if results:
            state[1] = True
        if losses:
            state[2] = True
        verdict = self._table[bool(state[1]), bool(state[2])][OPEN if missing > 0 else COMPLETE]
        if verdict is not _WAITING:
            state[3] = True
        return verdict


_CHUNK = 65_536


class Engine:
    """One run of a plan over arrivals (sorted seconds). Call `run` once, then read what it left."""

    def __init__(
        self,
        plan: Plan,
        arrivals: NDArray[np.float64],
        progress: Callable[[int], None] = lambda _arrived: None,
        *,
        budgets: Sequence[float] = (),
        partitions: Sequence[int] = (),
        hops: Mapping[str, Sequence[float]] | None = None,
        chosen: Mapping[str, Sequence[tuple[str, ...] | None]] | None = None,
        observer: Observer | None = None,
    ) -> None:
        """`progress` hears now and then how many requests have arrived; see `simulate` for the rest."""
        self.plan = plan
        self._observer = observer
        self._budgets = budgets
        self._hops = hops or {}  # by stage, and of the gate: what each request takes there
        places = (*(stage.name for stage in plan.stages), GATE)
        self._transfers = {name: Transfer() for name in places} if self._hops or plan.hop_delay else {}
        self._partitions = partitions if plan.partitions else ()
        self._progress = progress
        facts = plan.facts()
        shared: dict[Any, Any] = {}
        choosers = {stage.name: stage.choose for stage in plan.stages if stage.choose is not None}
        self._crossroads = roads = Crossroads(choosers, len(arrivals), plan.seed, chosen)
        views = partial(plan.views, facts=facts, shared=shared, foresight=roads.foresight)
        self.stages = {stage.name: StageRun(stage, views(stage)) for stage in plan.stages}
        for run in self.stages.values():
            run.successors = {name: self.stages[name] for name in plan.graph.successors[run.name]}
            run.single = self._single(run)
        if observer is not None:
            observer.begin(tuple(self.stages))
        self._arrivals = arrivals
        self._random = Random(plan.seed)  # noqa: S311  # simulation, not security
        self._joins = {name: Meeting(rule) for name, rule in plan.joins.items()}
        several = len(plan.graph.sinks) > 1 or any(stage.choose for stage in plan.stages)
        self._gate = Meeting(Rule(plan.sinks)) if several else None
        self._heap: list[tuple[float, int, Station | None, Any]] = []
        self._planned = 0
        self._clocks = 0  # events that plan themselves anew, for as long as anything else is to happen
        self._more = len(arrivals) > 0
        count = len(arrivals)
        self.finished = array("d", [float("nan")]) * count
        self.charged = array("d", [0.0]) * count  # seconds of execution
        self.kinds = bytearray(count)

    def _single(self, run: StageRun) -> StageRun | None:
        if self.plan.hop_delay or self._hops or run.plan.choose is not None or len(run.successors) != 1:
            return None
        (successor,) = run.successors.values()
        if successor.name in self.plan.joins or successor.owners is not None:
            return None
        return successor

    # The loop --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        heap, end, arrive = self._heap, self._end, self._arrive
        total = len(self._arrivals)
        self._plan_synchronisation()
        for index, sent in enumerate(chain(self._times(), (NEVER,))):
            while heap and heap[0][0] < sent:
                now, _, station, what = heappop(heap)
                if station is None:
                    what(now)
                else:
                    end(now, station, what)
            if sent < NEVER:
                arrive(index, sent)
                self._more = index + 1 < total

    def _end(self, now: float, station: Station, batch: Batch) -> None:
        if self._observer is not None:
            self._observer.batch(now, station.run.name, batch)
        station.complete(now, batch.worker)
        if station.starts or station.drops or station.timed:
            self._settle(now, station)
        run = station.run
        requests: list[Any] = batch.requests
        started = batch.started
        count = len(requests)
        share = run.shares[count]
        charged = self.charged
        queued = waited = 0.0
        for request in requests:
            entered = request.entered
            queued += entered - request.arrived
            waited += started - entered
            charged[request.index] += share
        run.batches += 1
        run.finished += count
        run.executed += run.durations[count]
        run.queued += queued
        run.waited += waited
        if run.single is None:
            self._leave(now, run, requests)
            return
        turn = run.single.next
        for request in requests:
            request.arrived = now
            station = turn()
            station.push(now, request)
            if station.starts or station.drops or station.timed:
                self._settle(now, station)

    def _times(self) -> Iterator[float]:
        for start in range(0, len(self._arrivals), _CHUNK):
            self._progress(start)
            yield from self._arrivals[start : start + _CHUNK].tolist()
        self._progress(len(self._arrivals))

    def _plan(self, at: float, action: Callable[[float], None]) -> None:
        self._planned += 1
        heappush(self._heap, (at, self._planned, None, action))

    def _again(self, at: float, clock: Callable[[float], None]) -> None:
        """Let a clock go on, unless nothing but clocks is left."""
        if self._more or len(self._heap) >= self._clocks:  # it is not among them itself now
            self._plan(at, clock)
        else:
            self._clocks -= 1

    def _settle(self, now: float, station: Station) -> None:
        """Do what the batcher decided: plan the ends of started batches, spread drops, come back when it asks."""
        starts = station.starts
        if starts:
            for batch in starts:
                self._planned += 1
                heappush(self._heap, (batch.expected_end, self._planned, station, batch))
            starts.clear()
        if station.drops:
            drops = station.drops[:]
            station.drops.clear()
            run = station.run
            run.dropped += len(drops)
            for request, _ in drops:
                assert isinstance(request, Traveller)  # nothing else is pushed
                if self._observer is not None:
                    self._observer.drop(now, run.name, request.index, request.arrived)
                self._lose(now, run.name, request)
        if station.timed:
            wake = station.next_wake(now)
            if wake is not None and wake < station.wakes:
                station.wakes = wake
                self._plan(wake, lambda at: self._wake(at, station))

    def _wake(self, now: float, station: Station) -> None:
        if station.wakes <= now:
            station.wakes = NEVER
        station.advance(now)
        self._settle(now, station)

    # From stage to stage ---------------------------------------------------------------------------------------

    def _arrive(self, index: int, sent: float) -> None:
        if self._partitions:
            partition = self._partitions[index]
        else:
            partition = self._random.randrange(self.plan.partitions) if self.plan.partitions else 0
        budget = self._budgets[index] if self._budgets else self.plan.slo
        request = Traveller(index, partition, sent, sent + budget)
        roots = self.plan.graph.roots
        for name in roots[1:]:
            self._send(sent, name, request.twin())
        self._send(sent, roots[0], request)

    def _send(self, now: float, name: str, request: Traveller) -> None:
        delay = self._hop(now, name, request)
        if delay:
            self._plan(now + delay, lambda at: self._deliver(at, name, request))
        else:
            self._deliver(now, name, request)

    def _hop(self, now: float, name: str, request: Traveller) -> float:
        if not self._transfers:
            return 0.0
        delay = self._hops[name][request.index] if self._hops else self.plan.hop_delay
        self._transfers[name].hear(now, delay)
        return delay

    def _deliver(self, now: float, name: str, request: Traveller) -> None:
        join = self._joins.get(name)
        if join is not None:
            expected = len(self.plan.graph.expected(name, request.path))
            if join.hear(request.index, expected, results=1) is not Verdict.READY:
                return
        request.arrived = now
        station = self.stages[name].station(request.partition)
        station.push(now, request)
        if station.starts or station.drops or station.timed:
            self._settle(now, station)

    def _leave(self, now: float, run: StageRun, requests: list[Traveller]) -> None:
        """Send the results of a batch where they go: to the successors, to chosen ones, or to the gate."""
        for request in requests:
            targets = tuple(run.successors)
            if run.plan.choose is not None:
                targets = self._crossroads.choose(run.name, request.index)
                request.path = {**request.path, run.name: targets}
            if not targets:
                self._finish(now, request, results=1)
                continue
            for name in targets[1:]:
                self._send(now, name, request.twin())
            self._send(now, targets[0], request)

    def _lose(self, now: float, name: str, request: Traveller) -> None:
        """Spread the loss of a request at stage `name` to the joins that wait for it, or to the gate."""
        graph = self.plan.graph
        for target, lost in graph.losses(name, request.path):
            if target is None:
                self._finish(now, request, losses=len(lost))
                continue
            expected = len(graph.expected(target, request.path))
            if self._joins[target].hear(request.index, expected, losses=len(lost)) is Verdict.LOST:
                self._lose(now, target, request)

    def _finish(self, now: float, request: Traveller, *, results: int = 0, losses: int = 0) -> None:
        """Bring one terminal's result, or the loss of some, to the gate, which tells the outcome once."""
        if self._gate is None:
            verdict = Verdict.READY if results else Verdict.LOST
        else:
            expected = len(self.plan.graph.terminals(request.path))
            verdict = self._gate.hear(request.index, expected, results=results, losses=losses)
        if verdict is Verdict.READY or verdict is Verdict.LOST:
            self.kinds[request.index] = PREDICTION if verdict is Verdict.READY else DROPPED
            self.finished[request.index] = now + self._hop(now, GATE, request)

    # Synchronisation of the policies ---------------------------------------------------------------------------

    def _plan_synchronisation(self) -> None:
        stations = [station for run in self.stages.values() for station in run.stations]
        if any(station.reports for station in stations):
            self._clocks += 1
            self._plan(self.plan.period, self._synchronise)

    def _synchronise(self, now: float) -> None:
        stations = [station for run in self.stages.values() for station in run.stations]
        states: dict[str, list[StageState]] = {name: [] for name in self.stages}
        for station in stations:
            state = station.report(now)
            if state is not None:
                states[station.run.name].append(state)
        if self._observer is not None:
            self._observer.synchronised(now, states)
        if self._transfers:
            states = self._with_transfers(now, states)
        for station in stations:
            station.tick(now, states)
            self._settle(now, station)
        self._again(now + self.plan.period, self._synchronise)

    def _with_transfers(self, now: float, states: Mapping[str, list[StageState]]) -> dict[str, list[StageState]]:
        hops = {name: transfer.samples(now) for name, transfer in self._transfers.items()}
        told = {
            stage: [*(replace(state, hops=hops[stage]) for state in each[:1]), *each[1:]]
            for stage, each in states.items()
        }
        return told | {GATE: [StageState(GATE, 0, now, hops=hops[GATE])]}
