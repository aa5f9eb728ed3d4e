"""Applications served in virtual time: lanes, `Selection`, `Controller` and `Fleet` as they are, on timers for workers.

What one lane's policy refuses is routed once more. Policies hear no reports, so the order stays by deadline. Reports to
the controller come every 2 s, decisions every second (INFaaS, section 5). What is ordered stands at once, and serves
when its load time is over. A batch runs where its variant's GPU is least busy: one of n keeps n / (n + 2.5) of it busy,
which is what the emulated family's a + b n leaves to others; one that starts when all together need more takes so much
longer. Every figure is emulated.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from statistics import median, median_low
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from spillway.agents.core.batching import Batcher
from spillway.agents.core.policies import DEFAULT, make
from spillway.agents.core.policy import StageFacts, StageView
from spillway.agents.core.request import Request
from spillway.topology.variants.controller import Report
from spillway.topology.variants.selection import How, Selection, Status
from spillway.topology.variants.states import Told

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spillway.agents.core.policy import Refusal
    from spillway.topology.variants.controller import Controller
    from spillway.topology.variants.hosts import Fleet
    from spillway.topology.variants.needs import Needs
    from spillway.topology.variants.variant import Variant

    Trace = Sequence[tuple[float, str]]  # when a query comes, and the model that it asks for

REPORT: Final = 2  # seconds
GPU: Final = "v100"
_IDLE: Final = 2.5  # queries' worth of a GPU that a batch leaves to others: a / b of the family's a + b n


def share(variant: Variant, size: int) -> float:
    """What a batch keeps busy of hardware that workers share."""
    return size / (size + _IDLE) if variant.hardware == GPU else 0.0


@dataclass(slots=True)
class _Query(Request):
    model: str = ""
    asked: tuple[str, ...] = ()  # the lanes that it waited in


class _Lane(Batcher):
    """A variant's lane as a stage has it, with its workers: those that load, too."""

    def __init__(self, variant: Variant) -> None:
        facts = {variant.name: StageFacts(variant.batch, variant.duration, 1)}
        view = StageView(variant.name, facts=facts, successors={variant.name: ()})
        super().__init__(make(DEFAULT, view), variant.batch, workers=0, duration=variant.duration)
        self.variant = variant
        self.staff: list[int] = []  # that are to stay, as they were ordered
        self.loading: set[int] = set()
        self.hosts: list[str] = []
        self.came = 0  # since the last report
        self.runs: list[tuple[int, float]] = []  # queries and seconds, since then

    def told(self, now: float) -> Told:
        size = median_low([size for size, _ in self.runs] or [1])
        slower = [seconds / self.variant.duration(size) for size, seconds in self.runs]
        p50 = median(slower) * self.variant.duration(size) if slower else None
        wait = self.wait(now) if self.workers else 0.0
        found = Told(self.workers, len(self.staff), 0, self.came / REPORT, p50, size, wait)
        self.came, self.runs = 0, []
        return found


class Outcome(NamedTuple):
    """What came of a load, after the warm-up."""

    cost: float  # of hosts
    misses: float  # the share of the queries that were late, dropped or not answered


class Serving:
    """Serves arrivals with what a controller orders, or with fixed workers where there is none."""

    def __init__(
        self, variants: Sequence[Variant], begin: Mapping[str, int], needs: Mapping[str, Needs], fleet: Fleet,
        controller: Controller | None = None,
    ) -> None:  # fmt: skip
        """`needs`: of a query, by the model that it asks for; `begin`: workers that are there.

        A controller places them; without one the fleet has them already.
        """
        self.lanes = {each.name: _Lane(each) for each in variants}
        lanes = self.lanes.values()
        self.by_model = {model: [each for each in lanes if each.variant.architecture == model] for model in needs}
        self.selection = Selection(variants)
        self.controller, self.needs, self.fleet, self.begin = controller, needs, fleet, begin
        self.homeless: defaultdict[str, list[_Query]] = defaultdict(list)  # by model
        self.unmet: Counter[str] = Counter()
        self.events: list[tuple[float, int, Callable[[float], None]]] = []
        self.numbers = count()  # of workers and events
        self.shares: defaultdict[str, float] = defaultdict(float)  # by host
        self.done: list[tuple[float, float, str]] = []  # arrival, latency, model
        self.dropped: list[tuple[float, str]] = []  # arrival, model
        self.cost = 0.0
        for name, workers in begin.items():
            lane = self.lanes[name]
            if controller is not None:
                controller.stands(0.0, name, workers, 1)
            for worker in islice(self.numbers, workers):
                lane.staff.append(worker)
                lane.attach(0.0, worker)
            lane.hosts = [host for host in fleet.hosts if name in fleet.on(host)]
            self.selection.update(name, Status(serves=True))
        if controller is not None:
            controller.report(0.0, Report({name: Told(workers, workers) for name, workers in begin.items()}))

    def serve(self, trace: Trace, seconds: float, warm: float) -> Outcome:
        """Serve `seconds` of a trace; what came and what it cost before `warm` does not count."""
        for second in range(1, int(seconds) + 1):
            self.plan(second, partial(self.tick, second, second > warm))
        for due, model in trace:
            self.advance(due)
            self.route(due, _Query("", 0, due, due, due, (), {}, model=model), first=True)
        self.advance(seconds)
        limits = {model: (each.latency or 0.0) + 1e-9 for model, each in self.needs.items()}
        in_time = sum(latency <= limits[model] for arrival, latency, model in self.done if arrival >= warm)
        return Outcome(self.cost, 1 - in_time / sum(arrival >= warm for arrival, _ in trace))

    def plan(self, at: float, action: Callable[[float], None]) -> None:
        heapq.heappush(self.events, (at, next(self.numbers), action))

    def advance(self, until: float) -> None:
        while self.events and self.events[0][0] <= until:
            now, _, action = heapq.heappop(self.events)
            action(now)

    # Queries -----------------------------------------------------------------------------------------------------

    def route(self, now: float, query: _Query, *, first: bool = False) -> None:
        """Have a query wait in a lane; it is load where it is routed first."""
        needs, model = self.needs[query.model], query.model
        for lane in self.by_model[model]:
            if lane.workers:
                self.selection.wait(lane.variant.name, lane.wait(now))
        due = query.sent + (needs.latency or 0.0)
        choice = self.selection.choose(needs, max(1e-9, due - now), query.asked)
        if choice.variant is None or choice.how is How.LOADING or not self.lanes[choice.variant].workers:
            if query.asked:
                self.dropped.append((query.sent, model))
                return
            self.unmet[choice.load or choice.variant or self.by_model[model][0].variant.name] += first
            self.homeless[model].append(query)
            return
        lane = self.lanes[choice.variant]
        query.arrived, query.deadline, query.asked = now, due - lane.variant.overhead, (*query.asked, choice.variant)
        lane.push(now, query)
        lane.came += first
        self.settle(now, lane)

    def settle(self, now: float, lane: _Lane) -> None:
        """Run the batches that a lane starts, and route anew what it refuses."""
        starts, drops = lane.starts[:], cast("list[tuple[_Query, Refusal]]", lane.drops[:])
        lane.starts.clear()
        lane.drops.clear()
        for batch in starts:
            size, host = len(batch.requests), min(lane.hosts, key=self.shares.__getitem__)
            mine = share(lane.variant, size)
            self.shares[host] += mine
            seconds = lane.variant.duration(size) * (max(1.0, self.shares[host]) if mine else 1.0)
            lane.runs.append((size, seconds))
            self.plan(now + seconds, partial(self.end, lane, batch.worker, host))
        for query, _ in drops:
            self.route(now, query)

    def end(self, lane: _Lane, worker: int, host: str, now: float) -> None:
        """A batch has ended."""
        batch, of_ = lane.complete(now, worker), lane.variant
        self.shares[host] -= share(of_, len(batch.requests))
        self.done += [(each.sent, now - each.sent + of_.overhead, of_.architecture) for each in batch.requests]
        self.settle(now, lane)

    # Workers -----------------------------------------------------------------------------------------------------

    def tick(self, second: int, counts: bool, now: float) -> None:  # noqa: FBT001 - of a planned call
        if self.controller is not None:
            if second % REPORT == 0:
                self.report(now, self.controller)
            for order in self.controller.orders(now):
                self.controller.stands(now, order.variant, order.workers, order.epoch)
                self.resize(now, self.lanes[order.variant], order.workers)
            self.controller.host_orders(now)  # the fleet has them from now on
        if counts:
            self.cost += sum(self.fleet.kinds[kind].price for kind in self.fleet.hosts.values()) / 3600

    def report(self, now: float, controller: Controller) -> None:
        told = {name: lane.told(now) for name, lane in self.lanes.items()}
        unmet = {name: queries / REPORT for name, queries in self.unmet.items()}
        self.unmet.clear()
        slos = {(each.app, model): each.latency or 0.0 for model, each in self.needs.items()}
        controller.report(now, Report(told, unmet, slos))
        for name, status in controller.statuses(now).items():
            self.selection.update(name, status)

    def ready(self, lane: _Lane, worker: int, now: float) -> None:
        """A worker has loaded."""
        if worker not in lane.loading:
            return  # not wanted any more
        lane.loading.discard(worker)
        lane.attach(now, worker)
        self.selection.update(lane.variant.name, Status(serves=True))
        self.settle(now, lane)
        for query in self.homeless.pop(lane.variant.architecture, []):
            self.route(now, query)

    def resize(self, now: float, lane: _Lane, workers: int) -> None:
        lane.hosts = [host for host in self.fleet.hosts if lane.variant.name in self.fleet.on(host)]
        while len(lane.staff) < workers:
            worker = next(self.numbers)
            lane.staff.append(worker)
            lane.loading.add(worker)
            self.plan(now + lane.variant.load, partial(self.ready, lane, worker))
        while len(lane.staff) > workers:
            worker = lane.staff.pop()
            if worker in lane.loading:
                lane.loading.discard(worker)
            else:
                lane.drain(now, worker)
        if not lane.workers:
            self.selection.update(lane.variant.name, Status())
            for query in cast("list[_Query]", lane.remove(now, lambda _: True)):
                query.asked = query.asked[:-1]
                self.route(now, query)
        self.settle(now, lane)
