"""InferLine's planner (section 4.4): the cheapest hardware, counts and batch limits whose estimated p99 keeps the SLO.

Algorithm 1 finds a plan that keeps the SLO, whatever it costs. Algorithm 2 makes it cheaper by the action that lowers
the cost most, for as long as one does and the SLO is kept. What the paper leaves open, or misprints, is settled so:

* Alg. 1, line 6 prints <= and means >. In place of the sum of service times stands an estimate with a worker for every
  query of any one SLO: it knows conditional edges. What it cannot answer in time, no plan can.
* A model begins on the hardware with the shortest batch of one (then the cheapest) that has a unit left; models choose
  in the pipeline's order. The bottleneck is the stage with the least k mu / s (then the first in the pipeline's order).
  Where its hardware has no unit left its batch limit doubles; where that cannot, the next bottleneck grows.
* Alg. 2, lines 14-15 stand outside both loops: of all actions on all stages the one is taken that leaves the lowest
  cost (then the first stage's; RemoveReplica before DowngradeHW).
* IncreaseBatch costs nothing, so it is tried when nothing else lowers the cost: the limit doubles, up to the largest
  profiled batch, of the stage that leaves the lowest p99 (then the first). Of the plans with the lowest cost that were
  passed the one with the lowest p99 is kept: what doubled without a saving behind it is taken back.
* The answer has the smallest batch limits that keep the SLO at that cost, stage after stage until none can shrink
  (`smallest`): a limit that few batches reach says nothing of how long batches take, and `pard` goes by it.
* DowngradeHW takes the next cheaper hardware that the stage has a profile for and that has a unit left. The stage
  begins there with Alg. 1 and goes on with RemoveReplica and IncreaseBatch while the others stay as they are.

So no single action lowers the cost of the answer. The Estimator is passed in (`Estimate`). A candidate that cannot
serve its visits in time by its throughput alone is not estimated, and an estimate ends when its misses are too many.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from spillway.lineage.errors import SpecError
from spillway.topology.capacity.envelope import envelope
from spillway.topology.quantities import show_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from spillway.topology.capacity.hardware import Option


class Sizing(NamedTuple):
    """What a stage has in a plan: how many workers, the largest batch, and the seconds of a batch of n."""

    workers: int
    batch: int
    duration: Callable[[int], float]


class Estimate(Protocol):
    """The Estimator; stages that `sizes` does not name keep their own."""

    def __call__(self, sizes: Mapping[str, Sizing], slo: float, most_late: int, /) -> NDArray[np.float64] | None:
        """Every query's latency in seconds; None where more than `most_late` take longer than `slo`."""


class NoPlanError(SpecError):
    """No plan keeps the SLO."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A stage to plan."""

    name: str
    share: float
    """s_m: of the queries, those that visit it."""
    options: tuple[Option, ...]
    """By price, the dearest first."""
    parity: tuple[int, int] | None = None
    """(k, rows) of a coded stage, which has ceil(count / k) parity workers for each row beside it."""
    after: tuple[str, ...] = ()
    """The planned stages that it comes after."""

    def units(self, count: int) -> int:
        return count if self.parity is None else count + self.parity[1] * -(-count // self.parity[0])


class Choice(NamedTuple):
    """What a stage has."""

    option: Option
    workers: int
    batch: int

    @property
    def doubled(self) -> Choice:
        return self._replace(batch=min(2 * self.batch, self.option.largest))

    @property
    def text(self) -> str:
        return f"{self.workers} x {self.option.kind}, batches up to {self.batch}"


Config = dict[str, Choice]


class Step(NamedTuple):
    """What the planner did, and what came of it."""

    text: str
    cost: float  # an hour
    p99: float  # seconds


@dataclass(slots=True)
class Found:
    """What the planner found."""

    config: Config
    cost: float
    latencies: NDArray[np.float64]
    steps: list[Step]


def p99_of(latencies: NDArray[np.float64]) -> float:
    """The least time within which all but a hundredth are answered."""
    place = len(latencies) - 1 - len(latencies) // 100
    return float(np.partition(latencies, place)[place])


@dataclass(slots=True)
class Planner:
    """Plans one pipeline for one trace. `arrivals` are sorted seconds; `counts` bound the units of a kind."""

    lanes: Sequence[Lane]
    counts: Mapping[str, int | None]
    estimate: Estimate
    arrivals: NDArray[np.float64]
    slo: float
    estimates: int = 0
    most_workers: int = field(init=False)
    """As many as all the queries of any one SLO: what is answered in time never finds them all busy."""
    _known: dict[tuple[tuple[str, int, int], ...], float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.most_workers = max(1, envelope(self.arrivals, [self.slo])[0])

    # Costs and feasibility ---------------------------------------------------------------------------------------

    def cost(self, config: Config) -> float:
        return sum(self._price(lane, config[lane.name]) for lane in self.lanes)

    @staticmethod
    def _price(lane: Lane, choice: Choice) -> float:
        return lane.units(choice.workers) * choice.option.price

    @property
    def most_late(self) -> int:
        return len(self.arrivals) // 100

    def left(self, config: Config, kind: str) -> float:
        """How many units of a kind a plan leaves."""
        count = self.counts.get(kind)
        if count is None:
            return float("inf")
        mine = ((lane, config[lane.name]) for lane in self.lanes if lane.name in config)
        return count - sum(lane.units(choice.workers) for lane, choice in mine if choice.option.kind == kind)

    def least(self, lane: Lane, option: Option, batch: int) -> int:
        """The least workers that can answer enough visits by the trace's end, whatever else there is."""
        span = float(self.arrivals[-1] - self.arrivals[0]) + self.slo
        visits = lane.share * len(self.arrivals) - self.most_late
        return max(1, ceil(visits / (option.fastest(batch) * span) * (1 - 1e-9)))

    def p99(self, config: Config) -> float | None:
        """The estimated p99 of a plan; None where it does not keep the SLO."""
        key = self.key(config)
        if key not in self._known:
            self._known[key] = self._p99(config)
        return self._known[key]

    @staticmethod
    def key(config: Config) -> tuple[tuple[str, int, int], ...]:
        return tuple((each.option.kind, each.workers, each.batch) for each in config.values())

    def step(self, text: str, config: Config) -> Step:
        return Step(text, self.cost(config), self.kept(config))

    def kept(self, config: Config) -> float:
        """The p99 of a plan that keeps the SLO."""
        p99 = self.p99(config)
        assert p99 is not None
        return p99

    def _p99(self, config: Config) -> float | None:
        for lane in self.lanes:
            choice = config[lane.name]
            if choice.workers < self.least(lane, choice.option, choice.batch):
                return None
        latencies = self.latencies(config)
        return None if latencies is None else p99_of(latencies)

    def latencies(self, config: Config) -> NDArray[np.float64] | None:
        self.estimates += 1
        sizes = {name: Sizing(each.workers, each.batch, each.option.duration) for name, each in config.items()}
        return self.estimate(sizes, self.slo, self.most_late)

    # Algorithm 1 -------------------------------------------------------------------------------------------------

    def initial(self) -> tuple[Config, list[Step]]:
        """A plan that keeps the SLO. Raises NoPlanError."""
        config: Config = {}
        for lane in self.lanes:
            able = [option for option in lane.options if self.left(config, option.kind) >= lane.units(1)]
            if not able:
                kinds = ", ".join(option.kind for option in lane.options)
                raise NoPlanError(f"no unit of {kinds} is left for stage {lane.name!r}; give the catalogue more units")
            config[lane.name] = Choice(min(able, key=lambda option: (option.durations[0], option.price)), 1, 1)
        self._check_service_time(config)
        p99 = self.p99(config)
        while p99 is None:
            self._grow(config, self.lanes)
            p99 = self.p99(config)
        told = "; ".join(f"{name}: {choice.text}" for name, choice in config.items())
        return config, [
            Step(f"Alg. 1, the fastest hardware, until no stage is too slow: {told}", self.cost(config), p99)
        ]

    def _check_service_time(self, config: Config) -> None:
        p99 = self.service_time(config)
        if p99 > self.slo:
            raise NoPlanError(
                f"p99 is {show_duration(float(f'{p99:.3g}'))} with the fastest hardware and a worker for every query, "
                f"and the SLO is {show_duration(self.slo)}; give it a longer SLO, faster hardware, or more workers "
                "for the stages whose sizes come from the file"
            )

    def service_time(self, config: Config) -> float:
        """The p99, in seconds, of a query that waits for nothing at the stages that are planned."""
        window = self.slo + sum(each.option.durations[0] for each in config.values())
        most = max(1, envelope(self.arrivals, [window])[0])
        sizes = {name: Sizing(most, 1, each.option.duration) for name, each in config.items()}
        latencies = self.estimate(sizes, self.slo, len(self.arrivals))
        assert latencies is not None  # any number may be late
        return p99_of(latencies)

    def _grow(self, config: Config, lanes: Iterable[Lane]) -> None:
        """Give the bottleneck one more worker, or larger batches. Raises NoPlanError where nothing can grow."""
        able = {name: each.workers * each.option.throughput(each.batch) for name, each in config.items()}
        slowest = sorted(lanes, key=lambda lane: able[lane.name] / max(lane.share, 1e-9))
        for lane in slowest:
            choice = config[lane.name]
            more = choice._replace(workers=choice.workers + 1)
            extra = lane.units(more.workers) - lane.units(choice.workers)
            if choice.workers < self.most_workers and self.left(config, choice.option.kind) >= extra:
                config[lane.name] = more
                return
            if choice.batch < choice.option.largest and choice.workers < self.most_workers:
                config[lane.name] = choice.doubled
                return
        kind = config[slowest[0].name].option.kind
        raise NoPlanError(
            f"stage {slowest[0].name!r} is too slow for this trace even with every unit of {kind} that other stages "
            "leave; give the catalogue more units, or the pipeline a longer SLO"
        )

    # Algorithm 2 -------------------------------------------------------------------------------------------------

    def cheapest(self) -> Found:
        """The thesis' greedy search. Raises NoPlanError."""
        config, steps = self.initial()
        while True:
            config = self.smallest(self._greedy(config, steps), steps)
            if next(self.savings(config), None) is None:
                return self.found(config, steps)

    def _greedy(self, config: Config, steps: list[Step]) -> Config:
        best, told = config, len(steps)
        while True:
            step = min(self.savings(config), key=lambda new: self.cost(new[1]), default=None)
            saves = step is not None
            if step is None:
                step = min(self.larger(config), key=lambda new: self.kept(new[1]), default=None)
            if step is None:
                break
            text, config = step
            steps.append(self.step(text, config))
            if saves or self.kept(config) < self.kept(best):
                best, told = config, len(steps)
        if told < len(steps):
            steps[told:] = [self.step(f"IncreaseBatch {len(steps) - told} more times saved nothing: undone", best)]
        return best

    def smallest(self, config: Config, steps: list[Step]) -> Config:
        """Return the plan with the smallest batches of the same cost, each as small as the others allow."""
        first, before = config, None
        while config != before:
            before = config
            for lane in self.lanes:
                choice = config[lane.name]
                smaller = ({**config, lane.name: choice._replace(batch=batch)} for batch in range(1, choice.batch))
                config = next((each for each in smaller if self.p99(each) is not None), config)
        if config != first:
            shrunk = (name for name, each in config.items() if each != first[name])
            told = ", ".join(f"{name} {first[name].batch} to {config[name].batch}" for name in shrunk)
            steps.append(self.step(f"smaller batches at the same cost: {told}", config))
        return config

    def found(self, config: Config, steps: list[Step]) -> Found:
        """Return a plan that keeps the SLO with the batches as small as they may be."""
        config = self.smallest(config, steps)
        latencies = self.latencies(config)
        assert latencies is not None  # it keeps the SLO
        return Found(config, self.cost(config), latencies, steps)

    def savings(self, config: Config, *, every: bool = False) -> Iterator[tuple[str, Config]]:
        """The plans that one RemoveReplica or DowngradeHW makes of a plan: cheaper, and within the SLO.

        With `every`, DowngradeHW tries all cheaper hardware, and not only the next cheaper.
        """
        for lane in self.lanes:
            choice = config[lane.name]
            fewer = {**config, lane.name: choice._replace(workers=choice.workers - 1)}
            if choice.workers > 1 and self.p99(fewer) is not None:
                yield f"RemoveReplica {lane.name}: {choice.workers} to {choice.workers - 1}", fewer
            cheaper = [option for option in lane.options if option.price < choice.option.price]
            others = {name: each for name, each in config.items() if name != lane.name}
            able = [option for option in cheaper if self.left(others, option.kind) >= lane.units(1)]
            for option in able if every else able[:1]:
                lesser = self._downgraded(lane, option, config)
                if lesser is not None:
                    yield f"DowngradeHW {lane.name}: {choice.text} to {lesser[lane.name].text}", lesser

    def larger(self, config: Config) -> Iterator[tuple[str, Config]]:
        """The plans that one IncreaseBatch makes of a plan, within the SLO."""
        for lane in self.lanes:
            choice = config[lane.name]
            new = {**config, lane.name: choice.doubled}
            if choice.batch < choice.option.largest and self.p99(new) is not None:
                yield f"IncreaseBatch {lane.name}: {choice.batch} to {choice.doubled.batch}", new

    def _downgraded(self, lane: Lane, option: Option, config: Config) -> Config | None:
        most, price = self.most_workers, self._price(lane, config[lane.name])
        if lane.units(self.least(lane, option, option.largest)) * option.price >= price:
            return None  # even its largest batches would need too many
        new = {**config, lane.name: Choice(option, most, 1)}
        if self.p99(new) is None:
            return None  # it is too slow for this SLO however many there are
        others = {name: each for name, each in config.items() if name != lane.name}
        count = min(self.least(lane, option, 1), most)
        while lane.units(count) > self.left(others, option.kind):
            count -= 1
        new[lane.name] = Choice(option, count, 1)
        try:
            while self.p99(new) is None:
                self._grow(new, [lane])
        except NoPlanError:
            return None
        return self._local(lane, new, price)

    def _local(self, lane: Lane, config: Config, price: float) -> Config | None:
        """Alg. 2 for one stage: what costs less than `price`, or None."""
        best = config
        while True:
            choice = config[lane.name]
            fewer = {**config, lane.name: choice._replace(workers=choice.workers - 1)}
            larger = {**config, lane.name: choice.doubled}
            if choice.workers > 1 and self.p99(fewer) is not None:
                config = best = fewer
            elif choice.batch < choice.option.largest and self.p99(larger) is not None:
                config = larger
            else:
                break
        return best if self._price(lane, best[lane.name]) < price * (1 - 1e-9) else None
