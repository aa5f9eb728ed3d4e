"""How sizes follow the load: our tuner, and what it is compared with."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Final

from benchmarks.inferline.scene import SLO
from spillway.topology.capacity.served import basis_of
from spillway.topology.capacity.tuner import Tuner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.inferline.serving import Serving
    from spillway.topology.capacity.plan import Plan
    from spillway.topology.capacity.tuner import Form

IDLE: Final = 120.0  # seconds until AutoScale turns off what is idle, its authors' t_wait


class Tuned:
    """Ours: `spillway.topology.capacity.tuner`, on counts of every 50 ms."""

    period = 0.05

    def __init__(self, plan: Plan, form: Form = "envelope") -> None:
        self._tuner = Tuner(basis_of(plan), form)
        for name, stage in plan.stages.items():
            self._tuner.stands(0.0, name, stage.count)

    def look(self, now: float, serving: Serving) -> None:
        self._tuner.count(now, serving.total(now))
        for name, order in self._tuner.orders(now).items():
            serving.resize(now, {name: order.count})
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
    period: float = 1.0
    _ready: float = 0.0
    _needed: deque[tuple[float, int]] = field(default_factory=deque)

    def look(self, now: float, serving: Serving) -> None:
        needed = max(1, ceil(serving.inside(now) / (self.rate * SLO)))
        self._needed.append((now, needed))
        while self._needed[0][0] < now - IDLE:
            self._needed.popleft()
        if now < self._ready:
            return
        most = max(count for _, count in self._needed)
        if needed > self.units:
            self.units = min(needed, 2 * self.units)
            self._ready = now + max(choice.option.load for choice in serving.config.values())
        elif most < self.units and now >= IDLE:
            self.units = most
        else:
            return
        serving.resize(now, {name: ceil(self.units * each - 1e-9) for name, each in self.per_unit.items()})
