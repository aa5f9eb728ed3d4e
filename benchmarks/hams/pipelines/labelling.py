"""OL(V) and OL(M): labels of pictures, by a large or a small network that goes on learning while it is asked.

A query with a `label` teaches (and is answered as well, by what was known before it); one without only asks. The
pictures are scikit-learn's handwritten digits, scaled up, moved and noisy.

The paper's sizes are 548 MB (VGG19) and 13.4 MB (MobileNet). Here a VGG of `width` 1 has 119 MB of state and a
MobileNet of `width` 1 has 13 MB; both shrink with the square of it. Their optimizer keeps nothing but its settings;
with momentum the states would be twice as large.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.hams.pipelines.scenes import digits
from spillway.agents.models.torch_learner import Learner

SIDE = 16  # pixels
Batch = Sequence[dict[str, Any]]


def pictures(count: int, seed: int, *, taught: bool = True) -> list[dict[str, Any]]:
    """Queries. Without `taught` the truth is under `truth`."""
    rng = np.random.default_rng(seed)
    images, labels = digits()
    picks = rng.integers(len(labels), size=count)
    queries = []
    for pick in picks:
        canvas = rng.normal(40, 15, (SIDE, SIDE))
        y, x = rng.integers(3, 6, 2)
        canvas[y : y + 8, x : x + 8] += images[pick] * 0.8
        queries.append(
            {
                "image": canvas.clip(0, 255).astype(np.uint8),
                "label" if taught else "truth": int(labels[pick]),
            }
        )
    return queries


def lively(net: nn.Module) -> None:
    """Begin with weights as He's, so that many layers with ReLU learn from the first batches on."""
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")


class Vgg(nn.Module):
    """Convolutions, then three wide layers, which have nearly all of the parameters, as in VGG19."""

    def __init__(self, width: float = 1.0) -> None:
        super().__init__()
        wide, deep = max(8, int(4096 * width)), max(8, int(128 * width))
        self.body = nn.Sequential(
            nn.Conv2d(1, deep // 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(deep // 2, deep, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(deep, 2 * deep, 3, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(2 * deep * (SIDE // 4) ** 2, wide), nn.ReLU(),
            nn.Linear(wide, wide // 4 * 3), nn.ReLU(), nn.Linear(wide // 4 * 3, 10),
        )  # fmt: skip
        lively(self)

    def forward(self, images: Tensor) -> Tensor:
        said: Tensor = self.body(images)
        return said


class Separable(nn.Module):
    """A depthwise and a pointwise convolution with BatchNorm, added to what came in where it has that shape."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.adds = before == after and stride == 1
        self.body = nn.Sequential(
            nn.Conv2d(before, before, 3, stride, 1, groups=before, bias=False), nn.BatchNorm2d(before), nn.ReLU(),
            nn.Conv2d(before, after, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
        )  # fmt: skip

    def forward(self, seen: Tensor) -> Tensor:
        said: Tensor = self.body(seen)
        return seen + said if self.adds else said


class MobileNet(nn.Module):
    """The layers of MobileNet's first version, for small pictures; without the sums it would learn too slowly."""

    PLAN = ((64, 2), (128, 1), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 1), (1024, 1))

    def __init__(self, width: float = 1.0) -> None:
        super().__init__()
        sizes = [max(8, int(32 * width)), *(max(8, int(plan * width)) for plan, _ in self.PLAN)]
        first = (nn.Conv2d(1, sizes[0], 3, padding=1, bias=False), nn.BatchNorm2d(sizes[0]), nn.ReLU())
        blocks = [
            Separable(before, after, stride)
            for before, after, (_, stride) in zip(sizes, sizes[1:], self.PLAN, strict=False)
        ]
        self.body = nn.Sequential(*first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(sizes[-1], 10))
        lively(self)

    def forward(self, images: Tensor) -> Tensor:
        said: Tensor = self.body(images)
        return said


def images(batch: Batch) -> Tensor:
    return torch.from_numpy(np.stack([query["image"] for query in batch])).float().div(128).sub(0.6).unsqueeze(1)


def loss(logits: Tensor, batch: Batch) -> Tensor:
    wanted = torch.tensor([query["label"] for query in batch], device=logits.device)
    return functional.cross_entropy(logits, wanted)


def labels(logits: Tensor, batch: Batch) -> list[dict[str, Any]]:
    best = logits.softmax(1).max(1)
    return [
        {"label": label, "confidence": sure}
        for _, label, sure in zip(batch, best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def _learner(net: Callable[[], nn.Module], rate: float) -> Learner:
    return Learner(
        net,
        lambda parameters: torch.optim.SGD(parameters, lr=rate),
        inputs=images,
        loss=loss,
        answers=labels,
        reads=lambda query: "label" not in query,
    )


def large(width: float = 1.0) -> Learner:
    return _learner(lambda: Vgg(width), 0.05)


def small(width: float = 1.0) -> Learner:
    return _learner(lambda: MobileNet(width), 0.1)
