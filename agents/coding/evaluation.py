"""How accurate reconstructions are (ParM, section 4.1): A_a, A_d, and A_o over the share that is unavailable."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spillway.agents.coding.data import answers, encoded, groups, rows_of
from spillway.agents.models.loading import find_function
from spillway.lineage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from spillway.agents.coding.codes import Arrays, Code
    from spillway.agents.coding.data import Data
    from spillway.agents.models.loading import Model

METRICS: Final = ("accuracy", "top-5", "iou")
CLASSES: Final = {"accuracy": 1, "top-5": 5}
"""Metrics of a number for each class, and among how many of the highest the true one is to be."""
_CORNERS: Final = 4  # of a box: x0, y0, x1, y1


@dataclass(frozen=True, slots=True)
class Grades:
    """Means over queries, of 0 to 1."""

    metric: str
    deployed: float
    """A_a: the deployed model's own answers."""
    degraded: Mapping[int, float]
    """A_d by how many answers of a group are missing: reconstructions alone, every set of that size missing in turn."""
    default: float
    """Were the mean answer given instead."""
    labelled: bool
    """Whether the truth is the data's labels; else it is the deployed model's answers."""

    def overall(self, unavailable: float, missing: int = 1) -> float:
        """A_o (equation 1)."""
        return (1 - unavailable) * self.deployed + unavailable * self.degraded[missing]


def evaluate(
    parities: Mapping[int, Model], code: Code, k: int, data: Data, outputs: Arrays, *, metric: str, seed: int
) -> Grades:
    """Grade reconstructions from the deployed model's `outputs` to `data` and what the parity models (by row) answer.

    Of several outputs the first is graded. Raises UsageError where the labels are not of the metric.
    """
    name, given = next(iter(outputs.items()))
    own = given.argmax(axis=-1) if metric in CLASSES else given
    truth = own if data.label is None else data.label
    _check(metric, name, given, truth)
    every = range(len(data))
    members = groups(len(data), k, np.random.default_rng(seed))
    told = {}
    for row, model in parities.items():
        queries = rows_of(encoded(code, row, data.inputs, members), every)
        told[row] = rows_of(answers(f"the parity model of row {row}", model, queries), every)
    known = rows_of(outputs, every)
    degraded: dict[int, float] = {}
    for missing in range(1, min(len(parities), k) + 1):
        made, wanted = [], []
        for group, of in enumerate(members):
            rows = {row: told[row][group] for row in parities}
            for gone in combinations(range(k), missing):
                solved = code.decode([None if n in gone else known[of[n]] for n in range(k)], rows)
                for place, answer in (solved or {}).items():
                    made.append(answer[name])
                    wanted.append(of[place])
        if made:  # a code may be unable to solve for so many
            degraded[missing] = grade(metric, np.stack(made), truth[wanted])
    mean = np.broadcast_to(given.mean(axis=0), given.shape)
    return Grades(metric, grade(metric, given, truth), degraded, grade(metric, mean, truth), data.label is not None)


def grade(metric: str, given: NDArray[Any], truth: NDArray[Any]) -> float:
    """The mean grade: whether the true class is among the top 1 or 5, or the intersection over the union of boxes.

    A metric of a user's own is `module:function`, and gives the grades of answers and their truth.
    """
    if metric not in METRICS:
        return float(np.mean(find_function(f"metric {metric!r}", metric)(given, truth)))
    if metric in CLASSES:
        own = given[np.arange(len(given)), truth][:, None]
        above = (given > own).sum(axis=1) + (given == own).sum(axis=1) - 1  # what is as good comes before: no favours
        return float((above < CLASSES[metric]).mean())
    low, high = np.maximum(given[:, :2], truth[:, :2]), np.minimum(given[:, 2:], truth[:, 2:])
    both = np.clip(high - low, 0, None).prod(axis=1)
    areas = sum(np.clip(boxes[:, 2:] - boxes[:, :2], 0, None).prod(axis=1) for boxes in (given, truth))
    return float((both / np.maximum(areas - both, np.finfo(np.float64).tiny)).mean())


def check_metric(metric: str) -> str:
    """The metric. Raises UsageError or ModelError where there is none of that name."""
    if metric not in METRICS and ":" not in metric:
        raise UsageError(f"there is no metric {metric!r}; use {', '.join(METRICS)}, or write module:function")
    if metric not in METRICS:
        find_function(f"metric {metric!r}", metric)
    return metric


def _check(metric: str, name: str, given: NDArray[Any], truth: NDArray[Any]) -> None:
    if metric not in METRICS:
        return
    if metric in CLASSES:
        fits = given.ndim == 2 and truth.ndim == 1 and truth.dtype.kind in "iu"  # noqa: PLR2004 - queries, classes
        fits = fits and 0 <= truth.min() <= truth.max() < given.shape[1]
    else:
        fits = given.shape == truth.shape == (len(truth), _CORNERS)
    if not fits:
        raise UsageError(
            f"'label' {truth.dtype.name} {list(truth.shape)} and output {name!r} {list(given.shape)} do not fit metric "
            f"{metric!r}: accuracy and top-5 take a class and a score for each class, iou takes boxes x0, y0, x1, y1"
        )
