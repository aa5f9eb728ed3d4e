"""A user's weights: what eq. 2.2 makes of all observations, kept up to date with each (thesis, section 2.4).

    w = m + (F'F + A)^-1 F' (y - F m)

`F` has the features of the n observed items as its rows (n x d), `y` what was observed. `m` and `A` are the prior: the
weights before any observation, 0 in the thesis, and what they are regularised by: lambda I, d x d (the thesis prints
I_n), until the users' own spread is known (`prior`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from spillway.lineage.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


def learn(weights: Vector, inverse: Matrix, features: Vector, residual: float, weight: float = 1.0) -> None:
    """Take one observation in, in place, in O(d^2), by Sherman and Morrison.

    `inverse` is (F'F + A)^-1, at first A^-1; it stays symmetric to the bit. `residual`: what was observed less what
    was predicted; it counts `weight` times (above 0). Raises ModelError, and changes nothing, where the weights would
    not stay finite.
    """
    gain = inverse @ features
    spread = 1 / weight + features @ gain
    learned = weights + gain * (residual / spread)
    if not (np.isfinite(spread) and np.isfinite(learned).all()):
        raise ModelError(f"with the residual {residual:g} its user's weights would not be finite numbers")
    weights[:] = learned
    step = gain / np.sqrt(spread)
    inverse -= step[:, None] * step


def naive(features: Matrix, observed: Vector, regularization: float | Matrix, prior: Vector) -> Vector:
    """The weights from all observations anew, as eq. 2.2 has it: O(n d^2 + d^3). `regularization`: lambda, or A."""
    square = features.T @ features + _matrix(regularization, features.shape[1])
    return prior + np.linalg.solve(square, features.T @ (observed - features @ prior))


def fitted(
    features: Matrix, observed: Vector, regularization: float | Matrix, prior: Vector, error: str = "squared"
) -> tuple[Vector, Matrix]:
    """Weights and inverse from all observations anew: as if each had been learned in its turn, from the prior on."""
    square = _matrix(regularization, len(prior))
    if error != "squared":  # how much one counts hangs on what the weights knew when it came
        weights, inverse = prior.copy(), np.linalg.inv(square)
        inverse = (inverse + inverse.T) / 2
        for each, value in zip(features, observed, strict=True):
            residual = float(value - weights @ each)
            learn(weights, inverse, each, residual, ERRORS[error](residual))
        return weights, inverse
    made = np.linalg.inv(features.T @ features + square)
    inverse = (made + made.T) / 2
    return prior + inverse @ (features.T @ (observed - features @ prior)), inverse


def _matrix(regularization: float | Matrix, dimension: int) -> Matrix:
    return regularization if isinstance(regularization, np.ndarray) else regularization * np.eye(dimension)


def huber(residual: float) -> float:
    """Residuals beyond 1 count by their size, not its square."""
    return 1 / max(1.0, abs(residual))


ERRORS: Final[dict[str, Callable[[float], float]]] = {"squared": lambda _residual: 1.0, "huber": huber}
"""The error functions that updates can minimise (section 2.4), each as an observation's weight by its residual."""
