"""Features from ratings: alternating least squares (thesis, section 2.2), to train with before serving begins.

min over W, X:  l (|W|^2 + |X|^2) + sum of (r_ui - w_u . x_i)^2
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spillway.agents.learning.velox.weights import naive

if TYPE_CHECKING:
    from spillway.agents.learning.velox.weights import Matrix, Vector


def als(
    users: np.ndarray, items: np.ndarray, ratings: Vector, shape: tuple[int, int], *, rank: int, regularization: float,
    rounds: int = 10, seed: int = 0, start: Matrix | None = None,
) -> tuple[Matrix, Matrix]:  # fmt: skip
    """Weights of users and features of items, `shape[0]` and `shape[1]` of them, from ratings of numbered ones.

    Who has no rating gets zeros. The first feature of every item is 1, so that each user's own mean is learned.
    With features to `start` from, items that have no rating keep theirs, and only where their first feature is 1 does
    it stay so.
    """
    rng = np.random.default_rng(seed)
    features = rng.normal(scale=rank**-0.5, size=(shape[1], rank)) if start is None else start.copy()
    if start is None:
        features[:, 0] = 1.0
    own = int(bool((features[:, 0] == 1).all()))  # features that are not learned
    kept = np.setdiff1d(np.arange(shape[1]), items) if start is not None else np.array([], np.intp)
    weights = np.zeros((shape[0], rank))
    for _ in range(rounds):
        weights = _solved(users, items, ratings, features, shape[0], regularization)
        rest = ratings - weights[users, :own].sum(1)
        learned = _solved(items, users, rest, weights[:, own:], shape[1], regularization)
        learned[kept] = features[kept, own:]
        features[:, own:] = learned
    return weights, features


def _solved(
    of: np.ndarray, by: np.ndarray, ratings: Vector, given: Matrix, count: int, regularization: float
) -> Matrix:
    made = np.zeros((count, given.shape[1]))
    order = np.argsort(of, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(of[order])) + 1):
        if len(rows):
            made[of[rows[0]]] = naive(given[by[rows]], ratings[rows], regularization, made[of[rows[0]]])
    return made
