"""What an update takes by the number of features (Figure 2.3), and topK by the set's size (Figure 2.4)."""

from __future__ import annotations

import itertools
import statistics
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from benchmarks.output import Table, median_spread, times
from spillway.agents.learning.velox.model import Features, VeloxModel
from spillway.agents.learning.velox.ranking import Ranking, TopK, User
from spillway.agents.learning.velox.thetas import Thetas
from spillway.agents.learning.velox.weights import learn, naive

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.agents.learning.velox.weights import Matrix, Vector

DIMENSIONS: Final = (16, 32, 64, 128, 256, 512, 1024)
RATINGS: Final = 143  # of a user: MovieLens 10M has 10,000,054 of 69,878 users
CATALOGUE: Final = 10_000
SETS: Final = (100, 200, 400, 800, 1600)


def dual(features: Matrix, observed: Vector, regularization: float, prior: Vector) -> Vector:
    """As `naive`, by a system of n equations, O(n^2 d + n^3): m + F' (F F' + l I)^-1 (y - F m)."""
    square = features @ features.T + regularization * np.eye(len(features))
    return prior + features.T @ np.linalg.solve(square, observed - features @ prior)


def _seconds(run: Callable[[], Any]) -> float:
    began = time.thread_time()
    run()
    return time.thread_time() - began


def updates(repeats: int) -> Table:
    """The three forms turn by turn, for a user of RATINGS observations."""
    rows = []
    for dimension in DIMENSIONS:
        rng = np.random.default_rng(dimension)
        features, observed = rng.normal(size=(RATINGS, dimension)), rng.normal(size=RATINGS)
        weights, inverse, prior = np.zeros(dimension), np.eye(dimension), np.zeros(dimension)
        forms: dict[str, Callable[[], Any]] = {
            "naive": lambda: naive(features, observed, 1.0, prior),  # noqa: B023 - called in this turn
            "sherman-morrison": lambda: learn(weights, inverse, features[0], 0.1),  # noqa: B023
            "dual": lambda: dual(features, observed, 1.0, prior),  # noqa: B023
        }
        taken: dict[str, list[float]] = {name: [] for name in forms}
        for turn in range(repeats + 2):
            for name, form in forms.items():
                seconds = _seconds(form)
                if turn > 1:
                    taken[name].append(1e3 * seconds)
        middle = {name: statistics.median(each) for name, each in taken.items()}
        own = middle["sherman-morrison"]
        rows.append(
            [
                str(dimension),
                *(median_spread(each, "{:.3f}") for each in taken.values()),
                times(middle["naive"] / own),
                times(middle["dual"] / own),
            ]
        )
    return Table(
        "Update of a user's weights, ms of processor time (Figure 2.3)",
        ("d", "naive (the thesis')", "Sherman-Morrison (ours)", "dual", "naive / ours", "dual / ours"),
        rows,
        (f"A user of {RATINGS} observations, as many as MovieLens 10M has a user. {repeats} updates, forms by turns.",),
    )


class Numbers(VeloxModel):
    """Features that are a table, or, `computed`, the same by a network of one hidden layer."""

    observations = RATINGS

    def __init__(self, dimension: int, *, computed: bool = False) -> None:
        rng = np.random.default_rng(dimension)
        self.dimension, self.theta = dimension, f"{dimension}-{computed}"
        if computed:
            self._one, self._two = rng.normal(size=(256, 8)), rng.normal(size=(dimension, 256))
        else:
            self.items, self.table = range(CATALOGUE), rng.normal(size=(CATALOGUE, dimension))

    def features(self, item: int) -> Any:
        return self._two @ np.tanh(self._one @ np.sin(item * np.arange(1, 9)))


def _rankings(model: VeloxModel, repeats: int) -> dict[str, list[list[float]]]:
    """Microseconds by set size, with nothing remembered and with all, sizes by turns."""
    taken: dict[str, list[list[float]]] = {"none": [[] for _ in SETS], "all": [[] for _ in SETS]}
    rng = np.random.default_rng(0)
    features = Features(model)
    weights = rng.normal(size=model.dimension)
    for turn in range(repeats + 2):
        for place, count in enumerate(SETS):
            items = rng.choice(CATALOGUE, count, replace=False).tolist()
            if not len(features.items):
                features = Features(model)
            ranking = Ranking(model, Thetas(model, features), TopK())
            user = User(weights, None, features, ("ada", 1, turn, 1))
            for each in taken.values():
                seconds = _seconds(lambda: ranking.top(user, items, 10, rng))  # noqa: B023 - called in this turn
                if turn > 1:
                    each[place].append(1e6 * seconds)
    return taken


def topk(repeats: int) -> Table:
    """The ten best of a set, with nothing remembered, and with all of it."""
    rows = []
    for computed, dimension in itertools.product((False, True), (10, 50, 200)):
        for name, each in _rankings(Numbers(dimension, computed=computed), repeats).items():
            values = [statistics.median(some) for some in each]
            fit = float(np.corrcoef(SETS, values)[0, 1] ** 2)
            told = ["computed" if computed else "table", str(dimension), name]
            rows.append([*told, *(f"{value:.0f}" for value in values), f"{fit:.3f}"])
    return Table(
        "topK of a set of items, microseconds of processor time, median (Figure 2.4)",
        ("features", "d", "remembered", *map(str, SETS), "R2 of a line"),
        rows,
        (
            f"Catalogue of {CATALOGUE}; {repeats} random sets of each size; the ten best by greedy.",
            "Remembered are the user's scores of a table, and computed features (by a network of 256 units).",
        ),
    )
