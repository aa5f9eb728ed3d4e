"""The demonstration's models: trained on scikit-learn's digits in seconds, and kept as files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.svm import SVC, LinearSVC

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

TRAINED_ON: Final = 1_400  # digits; the others are the queries
MODELS: Final = {
    "linear SVM": "sklearn:linear.skops",
    "kernel SVM": "sklearn:kernel.skops",
    "random forest, ONNX": "onnx:forest.onnx",
    "network, torch.export": "torchscript:network.pt2",
}
_STEPS: Final = 300


def digits(count: int = 1_797) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The first digits, as rows of 64 numbers between 0 and 1, and what they are; the same order each time."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))[:count]
    return (images[order] / 16).astype(np.float32), labels[order].astype(np.int64)


def queries() -> list[dict[str, Any]]:
    """What no model was trained on, as inputs of a query."""
    return [{"x": row} for row in digits()[0][TRAINED_ON:]]


def train(folder: Path) -> None:
    """Write the model files, where they are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    if all((folder / name.partition(":")[2]).exists() for name in MODELS.values()):
        return
    images, labels = digits(TRAINED_ON)
    _save(LinearSVC(), folder / "linear.skops", images, labels)
    _save(SVC(gamma=0.05), folder / "kernel.skops", images, labels)
    _export(RandomForestClassifier(60, random_state=0).fit(images, labels), folder / "forest.onnx")
    _network(folder / "network.pt2", images, labels)


def _save(model: Any, file: Path, images: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
    from skops import io  # noqa: PLC0415 - as below, only where there is something to train

    io.dump(model.fit(images, labels), file)


def _export(model: Any, file: Path) -> None:
    from skl2onnx import to_onnx  # noqa: PLC0415

    made = to_onnx(model, np.zeros((1, 64), np.float32), options={"zipmap": False})
    file.write_bytes(made.SerializeToString())


def _network(file: Path, images: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
    import torch  # noqa: PLC0415
    from torch import nn  # noqa: PLC0415

    torch.manual_seed(0)
    torch.set_num_threads(1)
    network = nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip
    optimizer = torch.optim.Adam(network.parameters(), 2e-3)
    x, y, chance = torch.from_numpy(images), torch.from_numpy(labels), torch.Generator().manual_seed(0)
    for _ in range(_STEPS):
        some = torch.randint(len(x), (128,), generator=chance)
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x[some]), y[some]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    batch = torch.export.Dim("batch", max=4_096)
    torch.export.save(torch.export.export(network.eval(), (x[:2],), dynamic_shapes=({0: batch},)), str(file))
