"""The worst window of a run: the highest drop rate over any stretch of so many seconds (PARD, Figs. 2 and 9).

Requests count where they were due. Windows begin at multiples of a step; those with too few requests to speak of a
rate are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

STEP = 0.25  # seconds between the beginnings of two windows
LEAST = 10  # requests in a window


def worst_window(due: NDArray[np.float64], good: NDArray[np.bool_], width: float) -> float:
    """Give the highest share of requests that were not good, over all windows of `width` seconds inside the run.

    `due`: sorted seconds. A run shorter than the window is one window. 0 where no window has enough requests.
    """
    if not len(due):
        return 0.0
    last = max(0.0, float(due[-1]) - width)
    starts = np.arange(0.0, last + 1e-9, STEP)
    first = np.searchsorted(due, starts)
    end = np.searchsorted(due, starts + width)
    sums = np.concatenate([[0], np.cumsum(~good)])
    counts = end - first
    enough = counts >= LEAST
    if not enough.any():
        return 0.0
    return float(((sums[end] - sums[first])[enough] / counts[enough]).max())


def hard_seconds(due: NDArray[np.float64], capacity: float, after: float = 5.0) -> NDArray[np.bool_]:
    """Say which seconds make dropping necessary: those with more requests than `capacity`, and `after` more.

    Depends on the load alone, so that every policy is judged over the same seconds.
    """
    counts = np.bincount(due.astype(np.int64))
    over = counts > capacity
    reach = int(after)
    return np.asarray(np.convolve(over, np.ones(reach + 1), "full")[: len(counts)] > 0)
