"""Which successors a stage with conditional edges chooses, where no model is there to say: drawn at random."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from math import isclose
from typing import TYPE_CHECKING

from lineage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from topology.spec import StageSpec

# What may be chosen (a successor, several joined by "+", "" for none) and how likely it is; the sum is 1.
Choice = Mapping[str, float]


def chooser(
    stage: StageSpec, successors: tuple[str, ...], choice: Choice | None
) -> Callable[[Random], tuple[str, ...]] | None:
    """Make the function that draws a choice; None for a stage that hands every result to all its successors."""
    if choice is None:
        if stage.choose is None:
            return None
        choice = {name: 1 / len(successors) for name in successors}
    elif stage.choose is None:
        raise UsageError(f"stage {stage.name} chooses no successors: it has no `choose` function")
    options = [tuple(name for name in option.split("+") if name) for option in choice]
    for option in options:
        for name in option:
            if name not in successors:
                raise UsageError(f"stage {stage.name} cannot choose {name!r}; its successors: {', '.join(successors)}")
    if min(choice.values()) < 0 or not isclose(sum(choice.values()), 1, abs_tol=1e-6):
        raise UsageError(f"stage {stage.name}: the probabilities of its choices must be at least 0 and add up to 1")
    limits = list(accumulate(choice.values()))

    def draw(random: Random) -> tuple[str, ...]:
        return random.choices(options, cum_weights=limits)[0]

    return draw
