"""Four models of two tasks on scikit-learn's handwritten digits: which digit it is, and whether it is even.

    spillway models register cnn examples.registry.zoo:digit_cnn --app digits --validation examples.registry.zoo:digits

Each is trained in seconds, by a seed, on all but the last 500 images; these are the validation set.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from examples.selection.training import Rows

ARCHITECTURES: Final = ("linear", "forest", "mlp", "cnn")
TASKS: Final = {"digits": 10, "even": 2}
_HELD: Final = 500
_STEPS: Final = 250


def _data(task: str) -> tuple[Rows, NDArray[np.int64]]:
    from sklearn.datasets import load_digits  # noqa: PLC0415 - by whom it trains

    pixels, labels = load_digits(return_X_y=True)
    return (pixels / 16).astype(np.float32), labels.astype(np.int64) if task == "digits" else 1 - labels % 2


def _held(task: str) -> tuple[Rows, NDArray[np.int64]]:
    pixels, labels = _data(task)
    return pixels[-_HELD:], labels[-_HELD:]


def _estimator(kind: str, task: str) -> Any:
    from sklearn.ensemble import RandomForestClassifier  # noqa: PLC0415 - as above
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

    pixels, labels = _data(task)
    made = LogisticRegression(max_iter=300) if kind == "linear" else RandomForestClassifier(60, random_state=0)
    return made.fit(pixels[:-_HELD], labels[:-_HELD])


def _network(kind: str, task: str) -> Any:
    import torch  # noqa: PLC0415 - as above
    from torch import nn  # noqa: PLC0415

    torch.set_num_threads(1)
    torch.manual_seed(0)
    classes = TASKS[task]
    if kind == "mlp":
        layers: list[nn.Module] = [
            nn.Linear(64, 256),
            nn.ReLU(),
            nn.Linear(256, 128),
            nn.ReLU(),
            nn.Linear(128, classes),
        ]
    else:
        layers = [nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        layers += [nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 128), nn.ReLU()]
        layers += [nn.Linear(128, classes)]
    network = nn.Sequential(*layers)
    optimizer, chance = torch.optim.Adam(network.parameters(), 2e-3), torch.Generator().manual_seed(0)
    pixels, labels = _data(task)
    x, y = torch.from_numpy(pixels[:-_HELD]), torch.from_numpy(labels[:-_HELD])
    for _ in range(_STEPS):
        some = torch.randint(len(x), (128,), generator=chance)
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x[some]), y[some]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return network


digits, even = partial(_held, "digits"), partial(_held, "even")
digit_linear, even_linear = partial(_estimator, "linear", "digits"), partial(_estimator, "linear", "even")
digit_forest, even_forest = partial(_estimator, "forest", "digits"), partial(_estimator, "forest", "even")
digit_mlp, even_mlp = partial(_network, "mlp", "digits"), partial(_network, "mlp", "even")
digit_cnn, even_cnn = partial(_network, "cnn", "digits"), partial(_network, "cnn", "even")
