"""scikit-learn's 1,797 handwritten digits: those to train with, and those that no model has seen."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.datasets import load_digits

if TYPE_CHECKING:
    from numpy.typing import NDArray

TRAINED_ON = 1_400

Arrays = dict[str, "NDArray[Any]"]


@lru_cache(maxsize=1)
def digits() -> Arrays:
    """All of them, (1, 8, 8) between 0 and 1, in an order that is the same each time."""
    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    images = (found.images[order] / 16).astype(np.float32)[:, None]
    return {"image": images, "label": found.target[order].astype(np.int64)}


def training() -> Arrays:
    return {name: value[:TRAINED_ON] for name, value in digits().items()}


def test() -> Arrays:
    return {name: value[TRAINED_ON:] for name, value in digits().items()}


def query(index: int, _rng: np.random.Generator) -> dict[str, Any]:
    """Inputs of the query with this index: `spillway replay --payload examples.parm.data:query`."""
    images = test()["image"]
    return {"image": images[index % len(images)]}
