"""scikit-learn's 1,797 handwritten digits: those to train with, and those that no model has seen.

Two further tasks are made of the same digits by a seed, and stand in for the paper's CIFAR-100 (top-5) and for its
cats and dogs to locate (the intersection of boxes over their union).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.datasets import load_digits

if TYPE_CHECKING:
    from numpy.typing import NDArray

TRAINED_ON = 1_400
SCENES, SCENES_SEEN_BY_NONE = 5_000, 1_000
CANVAS = 16

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


def pairs_training() -> Arrays:
    return pairs(training(), SCENES, seed=1)


def pairs_test() -> Arrays:
    return pairs(test(), SCENES_SEEN_BY_NONE, seed=2)


def pairs(of: Arrays, count: int, seed: int) -> Arrays:
    """Scenes (1, 8, 16) of two digits side by side; each of the 100 numbers is a class."""
    left, right = np.random.default_rng(seed).integers(len(of["label"]), size=(2, count))
    images = np.concatenate([of["image"][left], of["image"][right]], axis=-1)
    return {"image": images, "label": 10 * of["label"][left] + of["label"][right]}


def boxes_training() -> Arrays:
    return boxes(training(), SCENES, seed=3)


def boxes_test() -> Arrays:
    return boxes(test(), SCENES_SEEN_BY_NONE, seed=4)


def boxes(of: Arrays, count: int, seed: int) -> Arrays:
    """A digit somewhere in (1, CANVAS, CANVAS) of noise, and the box that its ink fills: x0, y0, x1, y1 of 0 to 1."""
    draw = np.random.default_rng(seed)
    picks, corners = draw.integers(len(of["label"]), size=count), draw.integers(CANVAS - 8 + 1, size=(count, 2))
    images = draw.uniform(0, 0.2, (count, 1, CANVAS, CANVAS)).astype(np.float32)
    label = np.empty((count, 4), np.float32)
    for n, (pick, (y, x)) in enumerate(zip(picks, corners, strict=True)):
        digit = of["image"][pick, 0]
        images[n, 0, y : y + 8, x : x + 8] += digit
        down, across = (digit > 0.2).any(1).nonzero()[0], (digit > 0.2).any(0).nonzero()[0]
        label[n] = x + across[0], y + down[0], x + across[-1] + 1, y + down[-1] + 1
    return {"image": images, "label": label / CANVAS}
