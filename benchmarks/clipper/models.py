"""Four models of the kinds that the thesis measures (Figure 3.3), trained on scikit-learn's digits in view of MNIST.

The digits are drawn at 28 by 28 pixels, as MNIST's are, and shifted and blurred copies make more of them, so that a
kernel SVM has thousands of support vectors.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Predict = Callable[[Sequence[Any]], object]

COPIES: Final = 4
NAMES: Final = ("linear SVM", "logistic regression", "random forest", "kernel SVM")


@cache
def images() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Rows of 784 numbers between 0 and 1, and which digits they are."""
    from sklearn.datasets import load_digits  # noqa: PLC0415

    small, labels = load_digits(return_X_y=True)
    drawn = np.pad(np.kron(small.reshape(-1, 8, 8) / 16, np.ones((1, 3, 3))), ((0, 0), (2, 2), (2, 2)))
    chance = np.random.default_rng(0)
    shifted = [np.roll(drawn, chance.integers(-2, 3, 2), axis=(1, 2)) for _ in range(COPIES)]
    noisy = np.concatenate(shifted) + chance.normal(0, 0.1, (COPIES * len(drawn), 28, 28))
    return noisy.reshape(len(noisy), -1).astype(np.float32), np.tile(labels, COPIES).astype(np.int64)


@cache
def predictor(name: str) -> Predict:
    """The model as a function of a batch, a list of rows. Trained at the first call."""
    from sklearn.ensemble import RandomForestClassifier  # noqa: PLC0415
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
    from sklearn.svm import SVC, LinearSVC  # noqa: PLC0415

    untrained: Any = {
        "linear SVM": LinearSVC(max_iter=200, tol=1e-2),
        "logistic regression": LogisticRegression(max_iter=30, tol=1e-2),
        "random forest": RandomForestClassifier(30, n_jobs=1, random_state=0),
        "kernel SVM": SVC(gamma=0.02),
    }[name]
    model = untrained.fit(*images())
    return lambda batch: model.predict(np.stack(batch))
