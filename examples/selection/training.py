"""Five models of handwritten digits from three frameworks, trained in seconds, by a seed; and queries with noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from examples.clipper.training import TRAINED_ON, digits

Rows = NDArray[np.float32]
Predict = Callable[[Rows], NDArray[Any]]  # probabilities of the ten digits for each row

KINDS: Final = ("linear", "forest", "mlp", "cnn", "nearest")
NOISE: Final = 0.25
_STEPS: Final = 300


def queries(count: int, seed: int = 0, noise: float = NOISE) -> tuple[Rows, NDArray[np.int64]]:
    """Draw digits that no model was trained on, each with noise of its own, and what they are."""
    images, labels = digits()
    chance = np.random.default_rng([seed, count])
    drawn = chance.integers(TRAINED_ON, len(labels), count)
    rows = images[drawn] + chance.normal(0, noise, (count, images.shape[1]))
    return rows.astype(np.float32), labels[drawn]


def inverted(rows: Rows) -> Rows:
    """What a camera whose signal is turned over would send."""
    return 1 - rows


def fitted(kind: str, count: int = TRAINED_ON, seed: int = 0) -> Predict:
    """A model that is trained on the first `count` digits."""
    return trained(kind, *digits(count), seed)


def trained(kind: str, images: Rows, labels: NDArray[np.int64], seed: int = 0, trees: int = 60) -> Predict:
    """A model of a kind, trained on these."""
    if kind in ("mlp", "cnn"):
        return _network(kind, images, labels, seed)
    from sklearn.ensemble import RandomForestClassifier  # noqa: PLC0415 - as below, by whom it serves
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
    from sklearn.neighbors import KNeighborsClassifier  # noqa: PLC0415

    estimators: dict[str, Any] = {
        "linear": LogisticRegression(max_iter=200),
        "forest": RandomForestClassifier(trees, random_state=seed),
        "nearest": KNeighborsClassifier(5),
    }
    estimator = estimators[kind].fit(images, labels)
    return _onnx(estimator) if kind == "nearest" else estimator.predict_proba


def _onnx(estimator: Any) -> Predict:
    """The model in ONNX Runtime."""
    import onnxruntime  # noqa: PLC0415
    from skl2onnx import to_onnx  # noqa: PLC0415

    made = to_onnx(estimator, np.zeros((1, 64), np.float32), options={"zipmap": False})
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda rows: session.run(["probabilities"], {"X": rows})[0]


def _network(kind: str, images: Rows, labels: NDArray[np.int64], seed: int) -> Predict:
    import torch  # noqa: PLC0415
    from torch import nn  # noqa: PLC0415

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    if kind == "mlp":
        layers: list[nn.Module] = [nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)]
    else:
        layers = [nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        layers += [nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10)]
    network = nn.Sequential(*layers)
    optimizer, chance = torch.optim.Adam(network.parameters(), 2e-3), torch.Generator().manual_seed(seed)
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    for _ in range(_STEPS):
        some = torch.randint(len(x), (128,), generator=chance)
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x[some]), y[some]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    @torch.inference_mode()
    def predict(rows: Rows) -> NDArray[Any]:
        chances: NDArray[Any] = network(torch.from_numpy(rows)).softmax(1).numpy()
        return chances

    return predict
