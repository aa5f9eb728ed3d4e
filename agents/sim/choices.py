"""Which successors a stage with conditional edges chooses, where no model is there to say: drawn at random.

Every request's choices are drawn before the run, from the seed alone, so that the same requests go the same ways
whatever a policy does to them.
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


@dataclass(frozen=True, slots=True)
class Chooser:
    """The choices of one stage and their chances."""

    options: tuple[tuple[str, ...], ...]
    limits: tuple[float, ...]  # the sums of the options' chances

    def draw(self, chances: NDArray[np.float64]) -> list[tuple[str, ...]]:
        """The choice of each request: `chances` are even in [0, 1)."""
        return [self.options[index] for index in np.searchsorted(self.limits[:-1], chances, side="right").tolist()]


def chooser(stage: StageSpec, successors: tuple[str, ...], choice: Chances | None) -> Chooser | None:
    """Check what is said of a stage's choices; None for a stage that hands every result to all its successors."""
    if choice is None:
        if stage.choose is None:
            return None
        choice = {name: 1 / len(successors) for name in successors}
    elif stage.choose is None:
        raise UsageError(f"stage {stage.name} chooses no successors: it has no `choose` function")
    options = tuple(_option(stage.name, name, successors) for name in choice)
    if min(choice.values(), default=-1) < 0 or not isclose(sum(choice.values()), 1, abs_tol=1e-6):
        raise UsageError(f"stage {stage.name}: the probabilities of its choices must be at least 0 and add up to 1")
    return Chooser(options, tuple(accumulate(choice.values())))


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
        seed: int,
        chosen: Mapping[str, Sequence[tuple[str, ...] | None]] | None = None,
    ) -> None:
        """`chosen`: by stage, each request's choice where it is known; None where it is to be drawn."""
        rng = np.random.default_rng((seed, 0xC405))  # of its own: what else is drawn stays the same
        self.choices = {stage: each.draw(rng.random(count)) for stage, each in choosers.items()}
        for stage, known in (chosen or {}).items():
            if stage not in choosers or len(known) != count:
                raise UsageError(f"{len(known)} choices of {stage} for {count} arrivals; give one each of a chooser")
            drawn = self.choices[stage]
            self.choices[stage] = [own if own is not None else drawn[index] for index, own in enumerate(known)]
        self._predictor = PathPredictor()
        self.foresight: dict[str, Callable[[Any, float], Path]] = {}
        if choosers:
            self.foresight = {
                "predicted": lambda _request, share: self._predictor.expected(ANY, share),
                "oracle": lambda request, _share: {name: each[request.index] for name, each in self.choices.items()},
            }

    def choose(self, stage: str, index: int) -> tuple[str, ...]:
        choice = self.choices[stage][index]
        self._predictor.observe(ANY, stage, choice)
        return choice
