"""Serving in virtual time with sizes that change: the simulator's engine, with workers that are ordered and sent away.

A worker that is ordered serves when it has loaded, and costs from its order until it goes: one that drains ends its
batch first.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from benchmarks.inferline.scene import SLO, price, sizings
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a trace was served."""

    due: Times
    late: np.ndarray  # of each query: whether it took longer than the SLO, or was dropped
    latencies: Times
    cost: float  # of all of it
    orders: int = 0  # changes of a stage's size
    reversals: int = 0  # of them, up after down or down after up

    @property
    def misses(self) -> float:
        return float(self.late.mean())

    @property
    def hours(self) -> float:
        return float(self.due[-1]) / _HOUR


def served(
    scene: Scene,
    config: Mapping[str, Choice],
    arrivals: Times,
    scaler: Scaler | None = None,
    *,
    slo: float = SLO,
    seed: int = 0,
    policy: str = "naive",
) -> Outcome:
    """Serve a trace. What stays as it is runs in the compiled loop, with the same latencies."""
    if scaler is None and policy == "naive":
        latencies = scene.estimator(arrivals, seed)(sizings(config))
        assert latencies is not None  # any number may be late
        cost = price(config) * float(arrivals[-1]) / _HOUR
        return Outcome(arrivals, latencies > slo, latencies, cost)
    engine = Serving(scene, config, arrivals, scaler, slo, seed, policy)
    engine.run()
    latencies = np.frombuffer(engine.finished) - arrivals
    late = (latencies > slo) | (np.frombuffer(engine.kinds, np.uint8) != PREDICTION)
    return Outcome(arrivals, late, latencies, engine.cost(), engine.orders, engine.reversals)


class Serving(Engine):
    """One run."""

    def __init__(
        self,
        scene: Scene,
        config: Mapping[str, Choice],
        arrivals: Times,
        scaler: Scaler | None,
        slo: float,
        seed: int,
        policy: str,
    ) -> None:
        names = [stage.name for stage in scene.pipeline.spec.stages]
        plan = plan_of(
            scene.pipeline,
            workers=[config[name].workers for name in names],
            dispatch="partition",
            policy=policy,
            slo=slo,
            seed=seed,
            choices=scene.choices,
            durations={name: choice.option.duration for name, choice in config.items()},
            hop_delay=0.0,
            period=None,
            batches={name: choice.batch for name, choice in config.items()},
        )
        super().__init__(plan, arrivals)
        self.config, self.shares = config, scene.estimator(arrivals, seed).shares
        self.orders = self.reversals = 0
        self._last: dict[str, bool] = {}  # by stage, whether its last order was up
        self._scene, self._scaler, self.arrived = scene, scaler, arrivals
        self._hired = {name: dict.fromkeys(range(config[name].workers), 0.0) for name in names}  # when, by worker
        self._numbers = {name: config[name].workers for name in names}
        self._spent = 0.0
        self._first = 0  # of the queries that may not be answered yet
        self.prices = [(0.0, price(config))]

    # What scalers see and do -------------------------------------------------------------------------------------

    def total(self, now: float) -> int:
        """Queries that have come."""
        return int(np.searchsorted(self.arrived, now, side="right"))

    def rate(self, now: float, seconds: float) -> float:
        return (self.total(now) - self.total(now - seconds)) / seconds

    def inside(self, now: float) -> int:
        """Queries that have come and are not answered."""
        waiting = np.isnan(np.frombuffer(self.finished)[self._first : self.total(now)])
        inside = int(waiting.sum())
        self._first += int(waiting.argmax()) if inside else len(waiting)
        return inside

    def lag(self, stage: str) -> int:
        """A stage's queries that wait or run."""
        load = self.stages[stage].stations[0].load()
        return load.queued + load.forming + load.running

    def wanted(self, stage: str) -> int:
        return len(self._hired[stage])

    def resize(self, now: float, sizes: Mapping[str, int]) -> bool:
        """Order and send away, if the catalogue has as many; whether it does."""
        config = {
            name: choice._replace(workers=sizes.get(name, self.wanted(name))) for name, choice in self.config.items()
        }
        if not self._scene.within(config):
            return False
        for name, choice in config.items():
            more = choice.workers - self.wanted(name)
            if more:
                self.orders += 1
                self.reversals += self._last.get(name, more > 0) != (more > 0)
                self._last[name] = more > 0
            for _ in range(more):
                self._hire(now, name, choice.option.load)
            for _ in range(-more):
                self._send_away(now, name, max(self._hired[name]))  # who loads goes first
        self.prices.append((now, price(config)))
        return True

    def restart(self, now: float, sizes: Mapping[str, int], halt: float) -> None:
        """Stop the whole pipeline, and start it with other sizes; it costs throughout."""
        for name, count in sizes.items():
            self.orders += count != self.wanted(name)
            for number in list(self._hired[name]):
                self._send_away(now, name, number)
            for _ in range(count):
                self._hire(now, name, halt)
        self.prices.append((now, sum(count * self.config[name].option.price for name, count in sizes.items())))

    def cost(self) -> float:
        """Until the last query came."""
        end = float(self.arrived[-1])
        left = (
            (end - hired) * self.config[name].option.price
            for name, mine in self._hired.items()
            for hired in mine.values()
        )
        return (self._spent + sum(left)) / _HOUR

    # Inside ------------------------------------------------------------------------------------------------------

    def _plan_synchronisation(self) -> None:
        super()._plan_synchronisation()
        if self._scaler is not None:
            self._clocks += 1
            self._plan(self._scaler.period, self._look)

    def _look(self, now: float) -> None:
        assert self._scaler is not None  # it is called for one
        if self._more:
            self._scaler.look(now, self)
        self._again(now + self._scaler.period, self._look)

    def _hire(self, now: float, name: str, load: float) -> None:
        number = self._numbers[name]
        self._numbers[name] += 1
        self._hired[name][number] = now
        self._plan(now + load, partial(self._ready, name, number))

    def _ready(self, name: str, number: int, now: float) -> None:
        if number in self._hired[name]:
            station = self.stages[name].stations[0]
            station.attach(now, number)
            self._settle(now, station)

    def _send_away(self, now: float, name: str, number: int) -> None:
        hired = self._hired[name].pop(number)
        station = self.stages[name].stations[0]
        worker = station._workers.get(number)  # noqa: SLF001 - who loads is not there
        gone = now
        if worker is not None:
            gone = max(now, worker.ends)
            station.drain(now, number)
            self._settle(now, station)
        self._spent += (gone - hired) * self.config[name].option.price
