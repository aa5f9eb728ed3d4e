"""Serving in virtual time with sizes that change: the simulator's engine, with workers that are ordered and sent away.

A worker that is ordered serves when it has loaded, and costs from its order until it is sent away; it ends its batch
first.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from benchmarks.inferline.scene import CHOICES, SLO, price, sizings
from spillway.agents.sim.engine import Engine
from spillway.agents.sim.plan import plan_of
from spillway.producers.report import PREDICTION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.inferline.scene import Scene, Times
    from spillway.topology.capacity.planner import Choice

_HOUR = 3600.0


class Scaler(Protocol):
    """Says how many workers each stage is to have."""

    period: float  # seconds between two looks

    def look(self, now: float, serving: Serving) -> None: ...


class Outcome(NamedTuple):
    """How a trace was served."""

    misses: float  # percent of the queries, which took longer than the SLO or were dropped
    cost: float  # of all of it
    orders: int = 0  # changes of a stage's size
    reversals: int = 0  # of them, up after down or down after up


def served(
    scene: Scene,
    config: Mapping[str, Choice],
    arrivals: Times,
    scaler: Scaler | None = None,
    *,
    seed: int = 0,
    policy: str = "naive",
) -> Outcome:
    """Serve a trace. What stays as it is runs in the compiled loop, with the same latencies."""
    if scaler is None:
        latencies = scene.estimator(arrivals, seed)(sizings(config))
        assert latencies is not None  # any number may be late
        return Outcome(100 * float((latencies > SLO).mean()), price(config) * float(arrivals[-1]) / _HOUR)
    engine = Serving(scene, config, arrivals, scaler, seed, policy)
    engine.run()
    late = np.frombuffer(engine.finished) - arrivals > SLO
    missed = late | (np.frombuffer(engine.kinds, np.uint8) != PREDICTION)
    return Outcome(100 * float(missed.mean()), engine.cost(), engine.orders, engine.reversals)


class Serving(Engine):
    """One run."""

    def __init__(
        self, scene: Scene, config: Mapping[str, Choice], arrivals: Times, scaler: Scaler, seed: int, policy: str
    ) -> None:
        names = [stage.name for stage in scene.pipeline.spec.stages]
        plan = plan_of(
            scene.pipeline,
            workers=[config[name].workers for name in names],
            dispatch="partition",
            policy=policy,
            slo=SLO,
            seed=seed,
            choices=CHOICES[scene.pipeline.spec.name],
            durations={name: choice.option.duration for name, choice in config.items()},
            hop_delay=0.0,
            period=None,
            batches={name: choice.batch for name, choice in config.items()},
        )
        super().__init__(plan, arrivals)
        self.config, self.arrived, self._scaler = config, arrivals, scaler
        self.orders = self.reversals = 0
        self._last: dict[str, bool] = {}  # by stage, whether its last order was up
        self._hired = {name: list(range(config[name].workers)) for name in names}  # in the order of their orders
        self._numbers = count(max(choice.workers for choice in config.values()))
        self._spent = self._paid = 0.0  # what workers have cost, and until when
        self._first = 0  # of the queries that may not be answered yet

    # What scalers see and do -------------------------------------------------------------------------------------

    def total(self, now: float) -> int:
        """Queries that have come."""
        return int(np.searchsorted(self.arrived, now, side="right"))

    def inside(self, now: float) -> int:
        """Queries that have come and are not answered."""
        waiting = np.isnan(np.frombuffer(self.finished)[self._first : self.total(now)])
        inside = int(waiting.sum())
        self._first += int(waiting.argmax()) if inside else len(waiting)
        return inside

    def wanted(self, stage: str) -> int:
        return len(self._hired[stage])

    def resize(self, now: float, sizes: Mapping[str, int]) -> None:
        """Order workers, and send away whoever is too many: those that came last, who may still load."""
        self._pay(now)
        for name, size in sizes.items():
            more = size - self.wanted(name)
            if more:
                self.orders += 1
                self.reversals += self._last.get(name, more > 0) != (more > 0)
                self._last[name] = more > 0
            for _ in range(more):
                self._hire(now, name)
            for _ in range(-more):
                self._send_away(now, name)

    def cost(self) -> float:
        """Until the last query came."""
        self._pay(float(self.arrived[-1]))
        return self._spent

    # Inside ------------------------------------------------------------------------------------------------------

    def _plan_synchronisation(self) -> None:
        super()._plan_synchronisation()
        self._clocks += 1
        self._plan(self._scaler.period, self._look)

    def _look(self, now: float) -> None:
        if self._more:
            self._scaler.look(now, self)
        self._again(now + self._scaler.period, self._look)

    def _pay(self, until: float) -> None:
        hourly = sum(self.wanted(name) * choice.option.price for name, choice in self.config.items())
        self._spent += hourly * (until - self._paid) / _HOUR
        self._paid = until

    def _hire(self, now: float, name: str) -> None:
        number = next(self._numbers)
        self._hired[name].append(number)
        self._plan(now + self.config[name].option.load, partial(self._ready, name, number))

    def _ready(self, name: str, number: int, now: float) -> None:
        if number in self._hired[name]:
            station = self.stages[name].stations[0]
            station.attach(now, number)
            self._settle(now, station)

    def _send_away(self, now: float, name: str) -> None:
        number, station = self._hired[name].pop(), self.stages[name].stations[0]
        if number in station._workers:  # noqa: SLF001 - who loads is not there
            station.drain(now, number)
            self._settle(now, station)
