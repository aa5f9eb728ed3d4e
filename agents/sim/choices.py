"""Which successors a stage with conditional edges chooses, where no model is there to say: drawn at random.

Every request's choices are drawn before the run, from the seed alone, so that the same requests go the same ways
whatever a policy does to them. A choice may depend on a request's class (see `spillway.agents.core.paths`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import isclose
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.agents.core.paths import ANY, PathPredictor
from spillway.lineage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from spillway.agents.core.request import Path
    from spillway.topology.spec import StageSpec

# What may be chosen (a successor, several joined by "+", "" for none) and how likely it is; the sum is 1.
Chances = Mapping[str, float]
# The same for all requests, or by class.
Choice = Chances | Mapping[str, Chances]


@dataclass(frozen=True, slots=True)
class Chooser:
    """The choices of one stage and their chances, by class; ANY stands for classes that are not named."""

    options: tuple[tuple[str, ...], ...]
    limits: Mapping[str, tuple[float, ...]]  # by class, the sums of the options' chances

    def draw(self, chances: NDArray[np.float64], classes: Sequence[str]) -> list[tuple[str, ...]]:
        """The choice of each request: `chances` are even in [0, 1), `classes` are the requests' or none."""
        found = np.zeros(len(chances), np.int64)
        kinds = np.array(classes) if len(classes) else np.full(len(chances), ANY)
        for kind in np.unique(kinds):
            limits = self.limits.get(str(kind), self.limits.get(ANY))
            if limits is None:
                raise UsageError(f"nothing says what requests of class {str(kind)!r} choose")
            here = kinds == kind
            found[here] = np.searchsorted(limits[:-1], chances[here], side="right")
        return [self.options[index] for index in found.tolist()]


def chooser(stage: StageSpec, successors: tuple[str, ...], choice: Choice | None) -> Chooser | None:
    """Check what is said of a stage's choices; None for a stage that hands every result to all its successors."""
    if choice is None:
        if stage.choose is None:
            return None
        choice = {name: 1 / len(successors) for name in successors}
    elif stage.choose is None:
        raise UsageError(f"stage {stage.name} chooses no successors: it has no `choose` function")
    classed: dict[str, Any] = (
        dict(choice) if choice and isinstance(next(iter(choice.values())), Mapping) else {ANY: choice}
    )
    names = dict.fromkeys(name for chances in classed.values() for name in chances)
    options = tuple(_option(stage.name, name, successors) for name in names)
    limits = {}
    for kind, chances in classed.items():
        if min(chances.values(), default=-1) < 0 or not isclose(sum(chances.values()), 1, abs_tol=1e-6):
            raise UsageError(f"stage {stage.name}: the probabilities of its choices must be at least 0 and add up to 1")
        limits[kind] = tuple(accumulate(chances.get(name, 0.0) for name in names))
    return Chooser(options, limits)


def _option(stage: str, written: str, successors: tuple[str, ...]) -> tuple[str, ...]:
    option = tuple(name for name in written.split("+") if name)
    for name in option:
        if name not in successors:
            raise UsageError(f"stage {stage} cannot choose {name!r}; its successors: {', '.join(successors)}")
    return option


class Crossroads:
    """The ways that all requests of a run go, and what can be foretold of them.

    `foresight` is for the policies: what the choices of those before foretell, and, for comparison, the truth.
    """

    def __init__(
        self,
        choosers: Mapping[str, Chooser],
        count: int,
        classes: Sequence[str],
        seed: int,
        chosen: Mapping[str, Sequence[tuple[str, ...] | None]] | None = None,
    ) -> None:
        """`chosen`: by stage, each request's choice where it is known; None where it is to be drawn."""
        if len(classes) not in (0, count):
            raise UsageError(f"{len(classes)} classes for {count} arrivals; give one each")
        self._classes = classes
        rng = np.random.default_rng((seed, 0xC405))  # of its own: what else is drawn stays the same
        self.choices = {stage: each.draw(rng.random(count), classes) for stage, each in choosers.items()}
        for stage, known in (chosen or {}).items():
            if stage not in choosers or len(known) != count:
                raise UsageError(f"{len(known)} choices of {stage} for {count} arrivals; give one each of a chooser")
            drawn = self.choices[stage]
            self.choices[stage] = [own if own is not None else drawn[index] for index, own in enumerate(known)]
        self._predictor = PathPredictor()
        self.foresight: dict[str, Callable[[Any, float], Path]] = {}
        if choosers:
            self.foresight = {"predicted": self._predicted, "oracle": self._truth}

    def choose(self, stage: str, index: int) -> tuple[str, ...]:
        choice = self.choices[stage][index]
        self._predictor.observe(self._classes[index] if self._classes else ANY, stage, choice)
        return choice

    def _predicted(self, request: Any, share: float) -> Path:
        return self._predictor.expected(self._classes[request.index] if self._classes else ANY, share)

    def _truth(self, request: Any, _share: float) -> Path:
        return {stage: choices[request.index] for stage, choices in self.choices.items()}
