"""Applications served in virtual time: `Selection`, `Controller` and `Fleet` as they are, workers that are timers.

A lane's queue is the stage's policy: a worker that is free takes what it lets in, up to a batch, and what one lane
refuses is routed once more. Policies hear no reports, so the order stays by deadline. Reports to the controller come
every 2 s, decisions every second (INFaaS, section 5). What is ordered stands at once, and serves when its load time is
over. Workers on a GPU share it: a batch of n keeps n / (n + 2.5) of it busy, which is what the emulated family's
a + b n leaves to others; one that starts when all together need more takes so much longer. Every figure is emulated.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from statistics import median, median_low
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.infaas.family import of
from spillway.agents.core.policies import DEFAULT, make
from spillway.agents.core.policy import StageFacts, StageView
from spillway.agents.core.request import Request
from spillway.topology.variants.controller import Report
from spillway.topology.variants.selection import How, Selection, Status
from spillway.topology.variants.states import Told

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spillway.agents.core.policy import Policy, Refusal
    from spillway.topology.variants.controller import Controller
    from spillway.topology.variants.hosts import Fleet
    from spillway.topology.variants.needs import Needs
    from spillway.topology.variants.variant import Variant

    Trace = Sequence[tuple[float, str]]  # when a query comes, and the model that it asks for

REPORT: Final = 2  # seconds
GPU: Final = "v100"
_ALONE, _EIGHT = (of("ResNet50")[3].duration(size) for size in (1, 8))
_IDLE: Final = _ALONE / ((_EIGHT - _ALONE) / 7) - 1  # queries' worth of a GPU that a batch leaves to others: 2.5
_TICK, _READY, _FREE = range(3)  # of one moment, in this order


def share(variant: Variant, count: int) -> float:
    """What a batch keeps busy of hardware that workers share."""
    return count / (count + _IDLE) if variant.hardware == GPU else 0.0


@dataclass(slots=True)
class _Query(Request):
    model: str = ""
    asked: tuple[str, ...] = ()  # the lanes that it waited in


@dataclass(slots=True)
class _Lane:
    variant: Variant
    queue: Policy
    loading: set[int] = field(default_factory=set)
    idle: list[int] = field(default_factory=list)
    busy: dict[int, float] = field(default_factory=dict)  # when each is free again
    leaving: set[int] = field(default_factory=set)  # after their batch
    came: int = 0  # since the last report
    runs: list[tuple[int, float]] = field(default_factory=list)  # queries and seconds

    @property
    def ready(self) -> int:
        return len(self.idle) + len(self.busy) - len(self.leaving)

    @property
    def paid(self) -> int:
        return len(self.loading) + len(self.idle) + len(self.busy)

    @property
    def wanted(self) -> list[int]:
        """Those that stay, who can go at once first."""
        return [*self.loading, *self.idle, *(each for each in self.busy if each not in self.leaving)]

    def wait(self, now: float) -> float:
        """Seconds that a query would wait here: for the first worker that is free again, and for those before it."""
        if self.idle or not self.ready:
            return 0.0
        free = min(end for worker, end in self.busy.items() if worker not in self.leaving)
        return free - now + len(self.queue) / (self.ready * self.variant.rate)

    def told(self, now: float) -> Told:
        size = median_low([count for count, _ in self.runs] or [1])
        slower = [seconds / self.variant.duration(count) for count, seconds in self.runs]
        p50 = median(slower) * self.variant.duration(size) if slower else None
        found = Told(self.ready, self.paid, 0, self.came / REPORT, p50, size, self.wait(now))
        self.came, self.runs = 0, []
        return found


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a load, after the warm-up. Costs and bytes are sums over seconds."""

    done: Sequence[tuple[float, float, str]]  # arrival, latency, model
    queries: int
    answered: int  # in this time, those that came before too
    in_time: int
    seconds: float
    orders: int
    bill: Mapping[str, float]

    @property
    def misses(self) -> float:
        return 1 - self.in_time / self.queries

    def p99(self, model: str) -> float:
        found = [latency for _, latency, of in self.done if of == model]
        return float(np.percentile(found, 99)) if found else np.inf


def _queue(variant: Variant, policy: str) -> Policy:
    facts = {variant.name: StageFacts(variant.batch, variant.duration, 1)}
    return make(policy, StageView(variant.name, facts=facts, successors={variant.name: ()}))


class Serving:
    """Serves arrivals with what a controller orders, or with fixed workers where there is none."""

    def __init__(
        self, variants: Sequence[Variant], begin: Mapping[str, int], needs: Mapping[str, Needs], fleet: Fleet,
        controller: Controller | None = None,
    ) -> None:  # fmt: skip
        """`needs`: of a query, by the model that it asks for; `begin`: workers that are there, put where they fit."""
        self.lanes = {each.name: _Lane(each, _queue(each, DEFAULT)) for each in variants}
        lanes = self.lanes.values()
        self.by_model = {model: [each for each in lanes if each.variant.architecture == model] for model in needs}
        self.selection = Selection(variants)
        self.controller, self.needs, self.fleet = controller, needs, fleet
        self.homeless: defaultdict[str, list[_Query]] = defaultdict(list)  # by model
        self.unmet: Counter[str] = Counter()
        self.events: list[tuple[float, int, int, str, Sequence[Request]]] = []
        self.where: dict[int, str] = {}
        self.shares: defaultdict[str, float] = defaultdict(float)  # by host
        self.done: list[tuple[float, float, str]] = []
        self.dropped: list[tuple[float, str]] = []  # arrival, model
        self.most: dict[str, int] = {}
        self.orders = 0
        self.bill: defaultdict[str, float] = defaultdict(float)
        for name, count in begin.items():
            lane = self.lanes[name]
            if controller is None:
                fleet.place(0.0, lane.variant, count)
            else:
                controller.stands(0.0, name, count, 1)
            for _ in range(count):
                lane.idle.append(self.hire(lane))
            self.most[name] = count
            self.selection.update(name, Status(serves=True))
        if controller is not None:
            controller.report(0.0, Report({name: Told(count, count) for name, count in begin.items()}))

    def serve(self, trace: Trace, seconds: float, warm: float, policy: str = DEFAULT) -> Outcome:
        """Serve `seconds` of a trace; what came and what it cost before `warm` does not count."""
        for lane in self.lanes.values():
            lane.queue = _queue(lane.variant, policy)
        self.events += [(float(second), _TICK, second, "", ()) for second in range(1, int(seconds) + 1)]
        place = 0
        while True:
            due = self.events[0][0] if self.events else seconds + 1
            now = min(due, trace[place][0] if place < len(trace) else seconds + 1)
            if now > seconds:
                break
            if place < len(trace) and trace[place][0] <= due:
                self.route(now, _Query("", 0, now, now, now, (), {}, model=trace[place][1]), first=True)
                place += 1
                continue
            _, kind, number, name, batch = heapq.heappop(self.events)
            if kind == _TICK:
                self.tick(now, number, counts=now > warm)
            else:
                self.worker(now, number, self.lanes[name], batch, new=kind == _READY)
        done = [each for each in self.done if each[0] >= warm]
        in_time = sum(latency <= (self.needs[model].latency or 0.0) + 1e-9 for _, latency, model in done)
        queries = sum(arrival >= warm for arrival, _ in trace)
        answered = sum(arrival + latency >= warm for arrival, latency, _ in self.done)
        return Outcome(done, queries, answered, in_time, seconds - warm, self.orders, self.bill)

    def route(self, now: float, query: _Query, *, first: bool = False) -> None:
        """Have a query wait in a lane; it is load where it is routed first."""
        needs, model = self.needs[query.model], query.model
        for lane in self.by_model[model]:
            if lane.idle or lane.busy:
                self.selection.wait(lane.variant.name, lane.wait(now))
        due = query.sent + (needs.latency or 0.0)
        choice = self.selection.choose(needs, max(1e-9, due - now), query.asked)
        if choice.variant is None or choice.how is How.LOADING or not self.lanes[choice.variant].ready:
            if query.asked:
                self.dropped.append((query.sent, model))
                return
            self.unmet[choice.load or choice.variant or self.by_model[model][0].variant.name] += first
            self.homeless[model].append(query)
            return
        lane = self.lanes[choice.variant]
        query.arrived, query.deadline, query.asked = now, due - lane.variant.overhead, (*query.asked, choice.variant)
        lane.queue.push(now, query)
        lane.came += first
        self.start(now, lane)

    def start(self, now: float, lane: _Lane) -> None:
        refused: list[tuple[Request, Refusal]] = []
        while lane.idle and len(lane.queue):
            batch: list[Request] = []
            lane.queue.fill(now, now, lane.variant.batch, batch, refused)
            if batch:
                self.run(now, lane, batch)
        for query, _ in refused:
            assert isinstance(query, _Query)  # nothing else waits here
            self.route(now, query)

    def run(self, now: float, lane: _Lane, batch: Sequence[Request]) -> None:
        worker = min(lane.idle, key=lambda each: self.shares[self.where[each]])
        lane.idle.remove(worker)
        mine, host = share(lane.variant, len(batch)), self.where[worker]
        self.shares[host] += mine
        seconds = lane.variant.duration(len(batch)) * (max(1.0, self.shares[host]) if mine else 1.0)
        self.bill["gpu busy"] += mine * lane.variant.duration(len(batch))
        lane.runs.append((len(batch), seconds))
        lane.busy[worker] = now + seconds
        heapq.heappush(self.events, (now + seconds, _FREE, worker, lane.variant.name, batch))

    def worker(self, now: float, worker: int, lane: _Lane, batch: Sequence[Request], *, new: bool) -> None:
        """A worker is ready, or free again."""
        if new and worker not in lane.loading:
            return  # not wanted any more
        lane.loading.discard(worker)
        lane.busy.pop(worker, None)
        if not new:
            self.shares[self.where[worker]] -= share(lane.variant, len(batch))
        model = lane.variant.architecture
        self.done += [(each.sent, now - each.sent + lane.variant.overhead, model) for each in batch]
        if worker in lane.leaving:
            lane.leaving.discard(worker)
            return
        lane.idle.append(worker)
        if new:
            self.selection.update(lane.variant.name, Status(serves=True))
            for query in self.homeless.pop(model, []):
                self.route(now, query)
        self.start(now, lane)

    def tick(self, now: float, second: int, *, counts: bool) -> None:
        if self.controller is not None:
            if second % REPORT == 0:
                self.report(now)
            for order in self.controller.orders(now):
                self.orders += 1
                self.controller.stands(now, order.variant, order.workers, order.epoch)
                self.resize(now, self.lanes[order.variant], order.workers)
            self.controller.host_orders(now)  # the fleet has them from now on
        if not counts:
            self.bill.clear()
            return
        for lane in self.lanes.values():
            self.bill["variants"] += lane.paid * lane.variant.price
            self.bill["gpu memory"] += lane.paid * lane.variant.memory if lane.variant.hardware == GPU else 0
        for kind in self.fleet.hosts.values():
            host = self.fleet.kinds[kind]
            self.bill["hosts"] += host.price / 3600
            if GPU in host.has:
                self.bill["gpu memory there"] += host.has[GPU].memory or 0
                self.bill["gpus"] += 1

    def report(self, now: float) -> None:
        assert self.controller is not None
        told = {name: lane.told(now) for name, lane in self.lanes.items()}
        unmet = {name: count / REPORT for name, count in self.unmet.items()}
        self.unmet.clear()
        slos = {(each.app, model): each.latency or 0.0 for model, each in self.needs.items()}
        self.controller.report(now, Report(told, unmet, slos))
        for name, status in self.controller.statuses(now).items():
            self.selection.update(name, status)

    def hire(self, lane: _Lane) -> int:
        """A worker where the fleet has more of the variant than there are."""
        worker, there = len(self.where), Counter(self.where[each] for each in lane.wanted)
        self.where[worker] = next(
            host for host in self.fleet.hosts if self.fleet.on(host).get(lane.variant.name, 0) > there[host]
        )
        return worker

    def resize(self, now: float, lane: _Lane, count: int) -> None:
        while len(lane.wanted) < count:
            worker = self.hire(lane)
            lane.loading.add(worker)
            heapq.heappush(self.events, (now + lane.variant.load, _READY, worker, lane.variant.name, ()))
        self.most[lane.variant.name] = max(self.most.get(lane.variant.name, 0), count)
        meant = {host: self.fleet.on(host).get(lane.variant.name, 0) for host in self.fleet.hosts}
        while len(lane.wanted) > count:
            there = Counter(self.where[each] for each in lane.wanted)
            worker = next(each for each in lane.wanted if there[self.where[each]] > meant.get(self.where[each], 0))
            if worker in lane.loading:
                lane.loading.discard(worker)
            elif worker in lane.idle:
                lane.idle.remove(worker)
            else:
                lane.leaving.add(worker)
        if not lane.ready:
            self.selection.update(lane.variant.name, Status())
            for query in lane.queue.remove(lambda _: True):
                assert isinstance(query, _Query)  # nothing else waits here
                query.asked = query.asked[:-1]
                self.route(now, query)
