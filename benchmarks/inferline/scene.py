"""What is served: the thesis' pipelines on their hardware, with plans for traces, or as units of the whole pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from spillway.agents.sim.estimator import Estimator
from spillway.producers.load import recipes
from spillway.topology.capacity.hardware import Catalogue, options_of, read_catalogue
from spillway.topology.capacity.planner import Choice, Sizing, p99_of
from spillway.topology.capacity.provisioning import Provisioning, first_sizes
from spillway.topology.load import load
from spillway.topology.profiles import read_profile_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from spillway.topology.capacity.hardware import Option
    from spillway.topology.capacity.plan import Plan
    from spillway.topology.capacity.planner import Config
    from spillway.topology.load import Pipeline

    Times = NDArray[np.float64]

FOLDER: Final = Path(__file__).parents[2] / "examples" / "inferline"
SLO: Final = 0.15
CHOICES: Final[dict[str, dict[str, dict[str, float]]]] = {
    "image": {},
    "video": {"detect": {"": 0.4, "vehicle+plate": 0.2, "vehicle+person": 0.2, "person": 0.2}},
    "social": {"language": {"classify+topic": 0.6, "classify+translate": 0.4}},
    "cascade": {"fast": {"slow": 0.3, "": 0.7}},
}
"""By pipeline, how likely a stage's choices are: assumed, the thesis does not print them."""
_BOX: Final = 20.0  # seconds of even traffic by which a pipeline is profiled as a whole
_HALVINGS: Final = 10


def gamma(rate: float, cv2: float, seconds: float, seed: int) -> Times:
    return recipes.make([f"gamma:rate={rate:g},cv2={cv2:g},for={seconds:g}s"], seed)


@dataclass(frozen=True, slots=True)
class Unit:
    """A pipeline as a single black box: one worker of each stage, and the queries a second that it serves in time."""

    config: Mapping[str, Choice]
    rate: float
    price: float


@dataclass(frozen=True, slots=True)
class Scene:
    """A pipeline and the hardware that it can have."""

    pipeline: Pipeline
    catalogue: Catalogue
    options: Mapping[str, tuple[Option, ...]]

    @property
    def choices(self) -> dict[str, dict[str, float]]:
        return CHOICES[self.pipeline.spec.name]

    def estimator(self, arrivals: Times, seed: int = 0) -> Estimator:
        sizes = first_sizes(self.options)
        return Estimator(self.pipeline, arrivals, choices=self.choices, sizes=sizes, seed=seed)

    def provisioning(self, arrivals: Times, seed: int = 0) -> Provisioning:
        made = self.estimator(arrivals, seed)
        return Provisioning(self.pipeline, self.catalogue, self.options, made, made.shares, made.due, "trace")

    def plan(self, arrivals: Times, slo: float = SLO) -> Plan:
        """The planner's. Raises NoPlanError."""
        return self.provisioning(arrivals).plan(slo)

    def config(self, plan: Plan) -> Config:
        return {
            name: Choice(self.option(name, stage.hardware), stage.count, stage.batch)
            for name, stage in plan.stages.items()
        }

    def option(self, stage: str, kind: str) -> Option:
        return next(option for option in self.options[stage] if option.kind == kind)

    def within(self, config: Mapping[str, Choice]) -> bool:
        """Whether the catalogue has as much."""
        used: dict[str, int] = {}
        for choice in config.values():
            used[choice.option.kind] = used.get(choice.option.kind, 0) + choice.workers
        counts = {kind: self.catalogue.kinds[kind].count for kind in used}
        return all(most is None or used[kind] <= most for kind, most in counts.items())

    def fastest(self, kind: str) -> dict[str, Option]:
        """Each stage on its fastest hardware that is no dearer than a kind; where it has none, on its cheapest."""
        most = self.catalogue.kinds[kind].price
        found = {}
        for stage, options in self.options.items():
            able = [option for option in options if option.price <= most] or [options[-1]]
            found[stage] = min(able, key=lambda option: option.durations[0])
        return found

    def unit(self, slo: float = SLO) -> Unit:
        """The coarse-grained unit (4.6): the one batch limit, on the hardware that is cheapest for a query.

        Its rate is the most of evenly spaced queries whose p99 is within the SLO; so it bears all batch limits that can
        keep the SLO, and, in its favour, all tiers of hardware.
        """
        units = []
        for kind in self.catalogue.kinds:
            options = self.fastest(kind)
            for batch in (1, 2, 4, 8, 16, 32):
                config = {name: Choice(each, 1, min(batch, each.largest)) for name, each in options.items()}
                rate = self._rate(config, slo)
                if rate:
                    units.append(Unit(config, rate, sum(each.price for each in options.values())))
        return min(units, key=lambda unit: unit.price / unit.rate)

    def _rate(self, config: Mapping[str, Choice], slo: float) -> float:
        low, high = 0.0, 2 * max(choice.option.throughput(choice.batch) for choice in config.values())
        for _ in range(_HALVINGS):
            rate = (low + high) / 2
            latencies = self.estimator(np.arange(0.0, _BOX, 1 / rate))(sizings(config), slo)
            assert latencies is not None  # any number may be late
            low, high = (rate, high) if p99_of(latencies) <= slo else (low, rate)
        return low


def sizings(config: Mapping[str, Choice]) -> dict[str, Sizing]:
    return {name: Sizing(choice.workers, choice.batch, choice.option.duration) for name, choice in config.items()}


def repeated(unit: Unit, rate: float) -> Config:
    """So many units that they serve a rate."""
    return {name: choice._replace(workers=ceil(rate / unit.rate)) for name, choice in unit.config.items()}


def price(config: Mapping[str, Choice]) -> float:
    """An hour."""
    return sum(choice.workers * choice.option.price for choice in config.values())


@cache
def scene(name: str, *kinds: str) -> Scene:
    """One of the thesis' pipelines; `kinds` of hardware, or all."""
    pipeline = load(FOLDER / f"{name}.yaml")
    catalogue = read_catalogue(FOLDER / "hardware.yaml")
    profiles = read_profile_file(FOLDER / "profiles.yaml")
    if kinds:
        catalogue = catalogue.model_copy(update={"kinds": {kind: catalogue.kinds[kind] for kind in kinds}})
        profiles = profiles.model_copy(update={"hardware": {kind: profiles.hardware[kind] for kind in kinds}})
    return Scene(pipeline, catalogue, options_of(pipeline, catalogue, profiles, "profiles.yaml"))
