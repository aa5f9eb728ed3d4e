"""What is not known of a query is taken from the one nearest to it in time that it is known of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def filled(at: NDArray[np.float64], values: NDArray[np.float64], otherwise: float) -> NDArray[np.float64]:
    """Replace what is NaN in `values`, of things that happened `at` (sorted); by `otherwise` where nothing is known."""
    known = np.flatnonzero(~np.isnan(values))
    if not len(known):
        return np.full(len(values), otherwise)
    after = np.minimum(np.searchsorted(at[known], at), len(known) - 1)
    before = np.maximum(after - 1, 0)
    nearer = np.abs(at[known[before]] - at) <= np.abs(at[known[after]] - at)
    nearest = values[known[np.where(nearer, before, after)]]
    return np.where(np.isnan(values), nearest, values)
