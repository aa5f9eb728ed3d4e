"""What is served: the thesis' pipelines on their hardware, with plans for traces. All hardware is emulated."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spillway.agents.sim.estimator import Estimator
from spillway.producers.load import recipes
from spillway.topology.capacity.hardware import Catalogue, options_of, read_catalogue
from spillway.topology.capacity.planner import Choice, Sizing
from spillway.topology.capacity.provisioning import Provisioning, first_sizes
from spillway.topology.load import load
from spillway.topology.profiles import read_profile_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from spillway.topology.capacity.hardware import Option
    from spillway.topology.capacity.plan import Plan
    from spillway.topology.capacity.planner import Config
    from spillway.topology.load import Pipeline

    Times = NDArray[np.float64]

FOLDER: Final = Path(__file__).parents[2] / "examples" / "inferline"
THESIS: Final = ("cpu", "k80")  # its hardware
SLO: Final = 0.15
CHOICES: Final[dict[str, dict[str, dict[str, float]]]] = {
    "image": {},
    "video": {"detect": {"": 0.4, "vehicle+plate": 0.2, "vehicle+person": 0.2, "person": 0.2}},
    "social": {"language": {"classify+topic": 0.6, "classify+translate": 0.4}},
    "cascade": {"fast": {"slow": 0.3, "": 0.7}},
}
"""By pipeline, how likely a stage's choices are: assumed, the thesis does not print them."""
EMULATED: Final = "Emulated hardware, virtual time, policy naive unless pard is named; no hops."


def gamma(rate: float, cv2: float, seconds: float, seed: int) -> Times:
    return recipes.make([f"gamma:rate={rate:g},cv2={cv2:g},for={seconds:g}s"], seed)


@dataclass(frozen=True, slots=True)
class Scene:
    """A pipeline and the hardware that it can have."""

    pipeline: Pipeline
    catalogue: Catalogue
    options: Mapping[str, tuple[Option, ...]]

    def estimator(self, arrivals: Times, seed: int = 0) -> Estimator:
        choices, sizes = CHOICES[self.pipeline.spec.name], first_sizes(self.options)
        return Estimator(self.pipeline, arrivals, choices=choices, sizes=sizes, seed=seed)

    def provisioning(self, arrivals: Times) -> Provisioning:
        made = self.estimator(arrivals)
        return Provisioning(self.pipeline, self.catalogue, self.options, made, made.shares, made.due, "trace")

    def plan(self, arrivals: Times) -> Plan:
        """The planner's. Raises NoPlanError."""
        return self.provisioning(arrivals).plan(SLO)

    def config(self, plan: Plan) -> Config:
        return {
            name: Choice(next(each for each in self.options[name] if each.kind == of.hardware), of.count, of.batch)
            for name, of in plan.stages.items()
        }


def sizings(config: Mapping[str, Choice]) -> dict[str, Sizing]:
    return {name: Sizing(choice.workers, choice.batch, choice.option.duration) for name, choice in config.items()}


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
