"""Six models of the kinds that the thesis measures (Figure 3.3), trained on scikit-learn's digits in view of MNIST.

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
NAMES: Final = ("no-op", "linear SVM", "logistic regression", "random forest", "kernel SVM", "network (torch)")


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


def queries(count: int = 1_000) -> list[NDArray[np.float32]]:
    return list(images()[0][:count])


@cache
def predictor(name: str) -> Predict:
    """The model as a function of a batch, a list of rows. Trained at the first call."""
    if name == "no-op":
        return list
    rows, labels = images()
    if name == "network (torch)":
        return _network(rows, labels)
    model = _estimator(name).fit(rows, labels)
    return lambda batch: model.predict(np.stack(batch))


def _estimator(name: str) -> Any:
    from sklearn.ensemble import RandomForestClassifier  # noqa: PLC0415
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
    from sklearn.svm import SVC, LinearSVC  # noqa: PLC0415

    return {
        "linear SVM": lambda: LinearSVC(max_iter=200, tol=1e-2),
        "logistic regression": lambda: LogisticRegression(max_iter=30, tol=1e-2),
        "random forest": lambda: RandomForestClassifier(30, n_jobs=1, random_state=0),
        "kernel SVM": lambda: SVC(gamma=0.02),
    }[name]()


def _network(rows: NDArray[np.float32], labels: NDArray[np.int64]) -> Predict:
    import torch  # noqa: PLC0415
    from torch import nn  # noqa: PLC0415

    torch.manual_seed(0)
    torch.set_num_threads(1)
    network = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer, chance = torch.optim.Adam(network.parameters(), 2e-3), torch.Generator().manual_seed(0)
    x, y = torch.from_numpy(rows), torch.from_numpy(labels)
    for _ in range(200):
        some = torch.randint(len(x), (128,), generator=chance)
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x[some]), y[some]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    @torch.inference_mode()
    def predict(batch: Sequence[Any]) -> object:
        return network(torch.from_numpy(np.stack(batch))).argmax(1).tolist()

    return predict
