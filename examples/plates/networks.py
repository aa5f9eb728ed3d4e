"""The four networks of the pipeline: small enough to train in seconds on a CPU, and really trained."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from examples.plates.scenes import DIGIT, HEIGHT, WIDTH

STRIDE = 4  # of the detector's heat map


class Detector(nn.Module):
    """Scenes (n, 1, HEIGHT, WIDTH) in 0..1 -> per cell of a stride-4 grid: logit of "a digit's centre", its offset."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 12, 5, stride=2, padding=2), nn.BatchNorm2d(12), nn.ReLU(),
            nn.Conv2d(12, 24, 5, stride=2, padding=2), nn.BatchNorm2d(24), nn.ReLU(),
            nn.Conv2d(24, 32, 5, padding=2), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 3, 3, padding=1),
        )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        """(n, 3, HEIGHT / 4, WIDTH / 4): logit, dy, dx (offsets in cells)."""
        return self.body(images)


class Recogniser(nn.Module):
    """Crops (n, 1, DIGIT, DIGIT) in 0..1 -> logits of the ten digits."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(24, 48, 3, padding=1), nn.BatchNorm2d(48), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Dropout(0.2), nn.Linear(48 * (DIGIT // 4) ** 2, 64), nn.ReLU(), nn.Linear(64, 10),
        )  # fmt: skip

    def forward(self, crops: Tensor) -> Tensor:
        """(n, 10)."""
        return self.body(crops)


class QualityNet(nn.Module):
    """Scenes (n, 1, HEIGHT, WIDTH) in 0..1 -> the sensor noise of each, as a share of the worst."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1),
        )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        """(n,), in 0..1."""
        return torch.sigmoid(self.body(images)).squeeze(1)


class Calibrator(nn.Module):
    """What the other stages say of a plate (n, 4) -> logit of "every digit of it is right"."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, features: Tensor) -> Tensor:
        """(n,)."""
        return self.body(features).squeeze(1)


def peaks(maps: Tensor, threshold: float = 0.5) -> list[Tensor]:
    """Detector output -> per scene the digits' centres (digits, 2) as y, x in pixels, from left to right."""
    scores = torch.sigmoid(maps[:, 0])
    highest = functional.max_pool2d(scores, (5, 3), stride=1, padding=(2, 1))
    found = (scores == highest) & (scores > threshold)
    centres = []
    for index in range(len(maps)):
        y, x = found[index].nonzero(as_tuple=True)
        offsets = maps[index, 1:, y, x]
        at = torch.stack((y + 0.5 + offsets[0], x + 0.5 + offsets[1]), dim=1) * STRIDE
        centres.append(at[at[:, 1].argsort()])
    return centres


def crop(images: Tensor, centres: Tensor) -> Tensor:
    """One scene (HEIGHT, WIDTH) and its centres (n, 2) -> crops (n, DIGIT, DIGIT)."""
    half = DIGIT // 2
    top = (centres[:, 0] - half).round().long().clamp(0, HEIGHT - DIGIT)
    left = (centres[:, 1] - half).round().long().clamp(0, WIDTH - DIGIT)
    steps = torch.arange(DIGIT)
    return images[(top[:, None] + steps)[:, :, None], (left[:, None] + steps)[:, None, :]]
