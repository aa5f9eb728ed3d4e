"""One application served in virtual time: `Selection` and `Controller` as they are, workers that are timers.

A lane is a queue in order of arrival; a worker that is free takes what waits, up to its batch, and drops nothing
(`naive`). Reports come every 2 s, decisions every second (INFaaS, section 5). What is ordered stands at once, and
serves when its load time is over. Every figure is emulated.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from topology.variants.controller import Report
from topology.variants.selection import How, Selection, Status
from topology.variants.states import Told

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topology.variants.controller import Controller
    from topology.variants.needs import Needs
    from topology.variants.variant import Variant

REPORT: Final = 2  # seconds
_TICK, _READY, _FREE = range(3)  # of one moment, in this order


@dataclass(slots=True)
class _Lane:
    variant: Variant
    queue: deque[float] = field(default_factory=deque)  # arrivals
    loading: set[int] = field(default_factory=set)
    idle: list[int] = field(default_factory=list)
    busy: dict[int, float] = field(default_factory=dict)  # when each is free again
    leaving: set[int] = field(default_factory=set)  # after their batch
    came: int = 0  # since the last report
    sizes: list[int] = field(default_factory=list)

    @property
    def ready(self) -> int:
        return len(self.idle) + len(self.busy) - len(self.leaving)

    @property
    def paid(self) -> int:
        return len(self.loading) + len(self.idle) + len(self.busy)

    def wait(self, now: float) -> float:
        """Seconds that a query would wait here: for the first worker that is free again, and for those before it."""
        if self.idle or not self.ready:
            return 0.0
        free = min(end for worker, end in self.busy.items() if worker not in self.leaving)
        return free - now + len(self.queue) / (self.ready * self.variant.rate)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a load, after the warm-up."""

    queries: int
    in_time: int
    answered: int
    cost: float
    seconds: float
    most: Mapping[str, int]  # by variant, the most workers
    orders: int

    @property
    def misses(self) -> float:
        return 1 - self.in_time / self.queries


class Serving:
    """Serves arrivals with what a controller orders, or with fixed workers where there is none."""

    def __init__(
        self, variants: Sequence[Variant], begin: Mapping[str, int], needs: Needs, controller: Controller | None
    ) -> None:
        self.lanes = {each.name: _Lane(each) for each in variants}
        self.selection = Selection(variants)
        self.controller, self.needs = controller, needs
        self.homeless: deque[float] = deque()
        self.unmet: dict[str, int] = {}
        self.events: list[tuple[float, int, int, str, tuple[float, ...]]] = []
        self.numbers = 0
        self.done: list[tuple[float, float]] = []  # (arrival, latency)
        self.most: dict[str, int] = {}
        self.orders = 0
        for name, count in begin.items():
            lane = self.lanes[name]
            for _ in range(count):
                self.numbers += 1
                lane.idle.append(self.numbers)
            self.most[name] = count
            self.selection.update(name, Status(serves=True))
            if controller is not None:
                controller.stands(0.0, name, count, 1)
                controller.report(0.0, Report({name: Told(ready=count, alive=count)}))

    def serve(self, arrivals: Sequence[float], seconds: float, warm: float) -> Outcome:
        """Serve `seconds` of arrivals; what came and what it cost before `warm` does not count."""
        for second in range(1, int(seconds) + 1):
            heapq.heappush(self.events, (float(second), _TICK, second, "", ()))
        cost, last, place = 0.0, 0.0, 0
        while True:
            due = self.events[0][0] if self.events else seconds + 1
            now = min(due, arrivals[place] if place < len(arrivals) else seconds + 1)
            if now > seconds:
                break
            price = sum(lane.paid * lane.variant.price for lane in self.lanes.values())
            cost += price * max(0.0, now - max(last, warm))
            last = now
            if place < len(arrivals) and arrivals[place] <= due:
                self.route(now, arrivals[place])
                place += 1
                continue
            _, kind, number, name, batch = heapq.heappop(self.events)
            if kind == _TICK:
                self.tick(now, number)
            else:
                self.worker(now, number, self.lanes[name], batch, new=kind == _READY)
        counted = [latency for arrival, latency in self.done if arrival >= warm]
        slo = self.needs.latency or 0.0
        return Outcome(
            sum(arrival >= warm for arrival in arrivals), sum(each <= slo for each in counted), len(counted), cost,
            seconds - warm, self.most, self.orders,
        )  # fmt: skip

    def route(self, now: float, arrival: float) -> None:
        slo = self.needs.latency or 0.0
        for lane in self.lanes.values():
            if lane.ready:
                self.selection.wait(lane.variant.name, lane.wait(now))
        choice = self.selection.choose(self.needs, max(1e-9, arrival + slo - now))
        if choice.variant is None or choice.how is How.LOADING or not self.lanes[choice.variant].ready:
            wanted = choice.load or choice.variant or next(iter(self.lanes))
            self.unmet[wanted] = self.unmet.get(wanted, 0) + 1
            self.homeless.append(arrival)
            return
        lane = self.lanes[choice.variant]
        lane.queue.append(arrival)
        lane.came += 1
        self.start(now, lane)

    def start(self, now: float, lane: _Lane) -> None:
        while lane.idle and lane.queue:
            worker = lane.idle.pop()
            batch = tuple(lane.queue.popleft() for _ in range(min(len(lane.queue), lane.variant.batch)))
            lane.sizes.append(len(batch))
            lane.busy[worker] = end = now + lane.variant.duration(len(batch))
            heapq.heappush(self.events, (end, _FREE, worker, lane.variant.name, batch))

    def worker(self, now: float, worker: int, lane: _Lane, batch: tuple[float, ...], *, new: bool) -> None:
        """A worker is ready, or free again."""
        if new and worker not in lane.loading:
            return  # not wanted any more
        lane.loading.discard(worker)
        lane.busy.pop(worker, None)
        self.done += [(arrival, now - arrival + lane.variant.overhead) for arrival in batch]
        if worker in lane.leaving:
            lane.leaving.discard(worker)
            return
        lane.idle.append(worker)
        if new:
            self.selection.update(lane.variant.name, Status(serves=True))
            waiting, self.homeless = self.homeless, deque()
            for arrival in waiting:
                self.route(now, arrival)
        self.start(now, lane)

    def tick(self, now: float, second: int) -> None:
        if self.controller is None:
            return
        if second % REPORT == 0:
            self.report(now)
        for order in self.controller.orders(now):
            self.orders += 1
            self.controller.stands(now, order.variant, order.workers, order.epoch)
            self.resize(now, self.lanes[order.variant], order.workers)

    def report(self, now: float) -> None:
        assert self.controller is not None
        told = {}
        for name, lane in self.lanes.items():
            size = sorted(lane.sizes)[len(lane.sizes) // 2] if lane.sizes else 1
            p50 = lane.variant.duration(size) if lane.sizes else None
            told[name] = Told(lane.ready, lane.paid, 0, lane.came / REPORT, p50, size, lane.wait(now))
            lane.came, lane.sizes = 0, []
        unmet = {name: count / REPORT for name, count in self.unmet.items()}
        self.unmet = {}
        any_variant = next(iter(self.lanes.values())).variant
        slos = {(any_variant.app, any_variant.architecture): self.needs.latency or 0.0}
        self.controller.report(now, Report(told, unmet, slos))
        for name, status in self.controller.statuses(now).items():
            self.selection.update(name, status)

    def resize(self, now: float, lane: _Lane, count: int) -> None:
        while lane.ready + len(lane.loading) < count:
            self.numbers += 1
            lane.loading.add(self.numbers)
            event = (now + lane.variant.load, _READY, self.numbers, lane.variant.name, ())
            heapq.heappush(self.events, event)
        self.most[lane.variant.name] = max(self.most.get(lane.variant.name, 0), count)
        while lane.ready + len(lane.loading) > count:
            if lane.loading:
                lane.loading.pop()
            elif lane.idle:
                lane.idle.pop()
            else:
                lane.leaving.add(next(worker for worker in lane.busy if worker not in lane.leaving))
        if not lane.ready:
            self.selection.update(lane.variant.name, Status())
            waiting, lane.queue = lane.queue, deque()
            for arrival in waiting:
                self.route(now, arrival)
