"""How sizes follow the load: our tuner, and what it is compared with."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Final

from benchmarks.inferline.scene import SLO
from spillway.topology.capacity.served import basis_of
from spillway.topology.capacity.tuner import WAIT, Tuner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.inferline.serving import Serving
    from spillway.topology.capacity.plan import Plan
    from spillway.topology.capacity.tuner import Form

IDLE: Final = 120.0  # seconds until AutoScale turns off what is idle, its authors' t_wait
LAG: Final = 5  # messages for each replica, KEDA's default
STABLE: Final = 300.0  # seconds that the lag must be lower before replicas go: Kubernetes' default


class Tuned:
    """Ours: `spillway.topology.capacity.tuner`, on counts of every 50 ms."""

    period = 0.05

    def __init__(self, plan: Plan, form: Form = "envelope", wait: float = WAIT) -> None:
        self._tuner = Tuner(basis_of(plan), form, wait=wait)
        for name, stage in plan.stages.items():
            self._tuner.stands(0.0, name, stage.count)

    def look(self, now: float, serving: Serving) -> None:
        self._tuner.count(now, serving.total(now))
        orders = self._tuner.orders(now)
        if orders and serving.resize(now, {name: order.count for name, order in orders.items()}):
            for name, order in orders.items():
                self._tuner.stands(now, name, order.count)


@dataclass
class AutoScale:
    """AutoScale (Gandhi and others, 2012), as the thesis' coarse-grained baseline: units of the whole pipeline.

    As many units as the queries inside need, at what one unit holds when it serves `rate` just within the SLO; at the
    most twice as many at once, and none while one loads. A unit goes when it was not needed for 120 s.
    """

    per_unit: Mapping[str, float]
    """Workers of each stage."""
    rate: float
    units: int
    slo: float = SLO
    period: float = 1.0
    _ready: float = 0.0
    _needed: deque[tuple[float, int]] = field(default_factory=deque)

    def look(self, now: float, serving: Serving) -> None:
        needed = max(1, ceil(serving.inside(now) / (self.rate * self.slo)))
        self._needed.append((now, needed))
        while self._needed[0][0] < now - IDLE:
            self._needed.popleft()
        if now < self._ready:
            return
        most = max(count for _, count in self._needed)
        if needed > self.units:
            units = min(needed, 2 * self.units)
        elif most < self.units and now >= IDLE:
            units = most
        else:
            return
        if serving.resize(now, {name: ceil(units * each - 1e-9) for name, each in self.per_unit.items()}):
            if units > self.units:
                self._ready = now + max(choice.option.load for choice in serving.config.values())
            self.units = units


@dataclass
class Lag:
    """As KEDA with Kubernetes' autoscaler does: replicas of each stage by what waits there, never below the plan.

    Looked at every 15 s; at the most twice as many or four more at once; fewer when less was needed for 300 s.
    """

    plan: Mapping[str, int]
    period: float = 15.0
    _needed: dict[str, deque[tuple[float, int]]] = field(default_factory=dict)

    def look(self, now: float, serving: Serving) -> None:
        sizes = {}
        for name, least in self.plan.items():
            past, present = self._needed.setdefault(name, deque()), serving.wanted(name)
            needed = max(least, ceil(serving.lag(name) / LAG))
            past.append((now, needed))
            while past[0][0] < now - STABLE:
                past.popleft()
            most = max(count for _, count in past)
            sizes[name] = min(needed, max(2 * present, present + 4)) if needed > present else min(present, most)
        if any(count != serving.wanted(name) for name, count in sizes.items()):
            serving.resize(now, sizes)


@dataclass
class Ds2:
    """DS2: workers for the mean rate of the last period, without batches; each change stops and restarts the pipeline.

    `halt`: seconds until the pipeline runs again; then a period passes before the next decision.
    """

    halt: float
    period: float
    _next: float = 0.0

    def look(self, now: float, serving: Serving) -> None:
        if now < self._next:
            return
        rate = serving.rate(now, self.period)
        sizes = {
            name: max(1, ceil(rate * serving.shares[name] / choice.option.throughput(1)))
            for name, choice in serving.config.items()
        }
        if any(count != serving.wanted(name) for name, count in sizes.items()):
            serving.restart(now, sizes, self.halt)
            self._next = now + self.halt + self.period
