"""What is known of a user before any observation: a normal distribution of the weights, estimated from other users.

With w_u ~ N(m, S) and noise of variance s^2, the weights are those of eq. 2.2 from the mean m on, with the matrix
s^2 S^-1 in place of lambda I. `estimated` finds m, S and s^2 by empirical Bayes: expectation maximisation of the
users' marginal likelihood. What few users cannot say comes of lambda I, which counts as much as d users do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway.agents.learning.velox.weights import Matrix, Vector

_ROUNDS: Final = 30
_SETTLED: Final = 1e-4  # relative change of the noise in a round, below which estimation ends
_CHUNK: Final = 256  # users whose matrices are inverted at once


class Prior(NamedTuple):
    """The mean of users' weights, the matrix in place of lambda I, and its inverse, both symmetric to the bit."""

    mean: Vector
    precision: Matrix
    inverse: Matrix  # kept rather than made, so that all hosts begin with the same bits


def plain(dimension: int, regularization: float) -> Prior:
    """Return the prior of eq. 2.2 as printed: zero and lambda I."""
    return Prior(np.zeros(dimension), regularization * np.eye(dimension), np.eye(dimension) / regularization)


def estimated(rows: Sequence[Matrix], values: Sequence[Vector], regularization: float) -> Prior:
    """Return the prior that explains users best, of whom each has features, as rows, and what was observed of them."""
    parts = [(each, value) for each, value in zip(rows, values, strict=True) if len(value)]
    dimension = rows[0].shape[1] if len(rows) else 0
    count = sum(len(value) for _, value in parts)
    square = sum(float(value @ value) for _, value in parts)
    prior = plain(dimension, regularization)
    if not square > 0:  # nothing to explain
        return prior
    grams = np.array([each.T @ each for each, _ in parts])
    sums = np.array([each.T @ value for each, value in parts])
    noise = square / count
    for _ in range(_ROUNDS):
        weights, spread, unexplained = _expected(grams, sums, prior, noise)
        mean = weights.mean(0)
        off = weights - mean
        least = noise / regularization * np.eye(dimension)
        covariance = (noise * spread + off.T @ off + dimension * least) / (len(parts) + dimension)
        before, noise = noise, max((square + unexplained) / count, 1e-9 * square / count)
        inverse = (covariance + covariance.T) / (2 * noise)
        precision = np.linalg.inv(inverse)
        prior = Prior(mean, (precision + precision.T) / 2, inverse)
        if abs(noise - before) < _SETTLED * noise:
            break
    return prior


def _expected(grams: Matrix, sums: Matrix, prior: Prior, noise: float) -> tuple[Matrix, Matrix, float]:
    """The users' weights, the sum of their (F'F + A)^-1, and what the weights leave unexplained, less y'y."""
    weights, spread, unexplained = np.empty_like(sums), np.zeros_like(prior.precision), 0.0
    for begin in range(0, len(sums), _CHUNK):
        gram, moment = grams[begin : begin + _CHUNK], sums[begin : begin + _CHUNK]
        inverse = np.linalg.inv(gram + prior.precision)
        found = np.einsum("uij,uj->ui", inverse, moment + prior.precision @ prior.mean)
        spread += inverse.sum(0)
        unexplained += float(
            np.einsum("ui,uij,uj->", found, gram, found, optimize=True)
            - 2 * (moment * found).sum()
            + noise * np.einsum("uij,uji->", gram, inverse)
        )
        weights[begin : begin + _CHUNK] = found
    return weights, spread, unexplained
