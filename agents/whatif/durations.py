"""How long batches take by what was recorded, for stages without a profile or in its place.

For a size seen often enough, the median of its executions; for the others, the line alpha + beta * n through what was
seen (least squares, neither below 0). One size alone gives a constant: the best guess, and an underestimate of larger
batches, so it is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

_ENOUGH: Final = 5  # queries in batches of a size
_LEAST: Final = 20  # queries of a stage


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of a batch of n."""

    alpha: float
    beta: float
    medians: Mapping[int, float]
    sizes: int  # how many different ones were seen

    def __call__(self, count: int) -> float:
        """Return the expected seconds of a batch of `count`."""
        seconds = self.medians.get(count)
        return self.alpha + self.beta * count if seconds is None else seconds


def measured(executed: Mapping[int, list[float]]) -> Measured | None:
    """From executions by batch size, one element per query; None where too little was seen."""
    if sum(map(len, executed.values())) < _LEAST:
        return None
    medians = {size: float(np.median(seconds)) for size, seconds in sorted(executed.items())}
    weights = np.array([len(executed[size]) / size for size in medians])  # batches
    alpha, beta = _line(np.array(list(medians), np.float64), np.array(list(medians.values())), weights)
    often = {size: seconds for size, seconds in medians.items() if len(executed[size]) >= max(_ENOUGH, 2 * size)}
    return Measured(alpha, beta, often, len(medians))


def _line(sizes: np.ndarray, seconds: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    n, d = np.average(sizes, weights=weights), np.average(seconds, weights=weights)
    spread = np.average((sizes - n) ** 2, weights=weights)
    beta = np.average((sizes - n) * (seconds - d), weights=weights) / spread if spread > 0 else 0.0
    beta = max(0.0, float(beta))
    alpha = float(d - beta * n)
    if alpha < 0:  # a line through the origin
        return 0.0, float(np.average(sizes * seconds, weights=weights) / np.average(sizes**2, weights=weights))
    return alpha, beta
