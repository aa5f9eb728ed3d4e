"""The distribution of a stage's batch waits, and draws from it (PARD, section 4.2, batch wait estimation).

Each replica gives its recent waits, or (over the wire) quantiles of them, n of them at (i + 1/2) / n. A stage's pool
joins its replicas', each for as many waits as it stands for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from agents.core.policy import StageState

NONE: NDArray[np.float64] = np.zeros(0)


def pool(states: Sequence[StageState], most: int) -> NDArray[np.float64]:
    """Join the replicas' waits into at most about `most` values, equally likely; empty where none were seen."""
    heard = [state for state in states if len(state.waits) and state.waits_seen > 0]
    if not heard:
        return NONE
    if all(len(state.waits) == state.waits_seen for state in heard):
        return np.concatenate([np.array(state.waits, np.float64) for state in heard])
    seen = sum(state.waits_seen for state in heard)
    size = min(most, seen)
    return np.concatenate([_spread(state.waits, max(1, round(size * state.waits_seen / seen))) for state in heard])


def _spread(quantiles: Sequence[float], count: int) -> NDArray[np.float64]:
    """Give `count` values of which each quantile makes up the share that it stands for.

    Not linear between two of them: where the waits leap (all at once, or not at all) that would err by twice as much.
    """
    known = np.sort(np.array(quantiles, np.float64))
    return known[((np.arange(count) + 0.5) * (len(known) / count)).astype(np.intp)]


def uniform(duration: float, count: int) -> NDArray[np.float64]:
    """Give what stands in for a stage that says nothing: waits spread evenly over [0, d] (the paper's Figure 3b)."""
    return np.asarray((np.arange(count) + 0.5) * (duration / count), np.float64)


def quantile(values: NDArray[np.float64], share: float) -> float:
    """Give F^-1(share): the smallest of the values that at least this share of them does not exceed."""
    place = max(0, int(np.ceil(share * len(values))) - 1)
    return float(np.partition(values, place)[place])


class Sampler:
    """Draws from pools, a fixed set of uniform numbers for each stage.

    With the same numbers at every synchronisation an estimate changes only when the waits have changed.
    """

    __slots__ = ("_draws", "_numbers", "_seed")

    def __init__(self, draws: int, seed: int) -> None:
        self._draws = draws
        self._seed = seed
        self._numbers: list[NDArray[np.float64]] = []  # by the stage's place in the pipeline

    def draw(self, place: int, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Draw from the pool of the stage at `place`, independently of every other stage's."""
        while len(self._numbers) <= place:
            self._numbers.append(np.random.default_rng((self._seed, len(self._numbers))).random(self._draws))
        return values[(self._numbers[place] * len(values)).astype(np.intp)]
