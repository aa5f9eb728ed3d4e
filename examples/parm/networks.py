"""The paper's architectures, sized for digits of 8 by 8; each gives a number for each class (logits), or a box.

The deployed models (`models.py`) and their parity models share them.
"""

from __future__ import annotations

from torch import Tensor, nn

CLASSES = 10


class Mlp(nn.Module):
    """Hidden layers of 200 and 100 units (section 4.1, footnote 5)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 200), nn.ReLU(), nn.Linear(200, 100), nn.ReLU(), nn.Linear(100, CLASSES)
        )

    def forward(self, image: Tensor) -> Tensor:
        return self.layers(image)


class LeNet(nn.Module):
    """LeNet-5 on digits made twice as large, as its two poolings would leave little of 8 by 8."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Upsample(scale_factor=2),
            nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, CLASSES),
        )  # fmt: skip

    def forward(self, image: Tensor) -> Tensor:
        return self.layers(image)


class Block(nn.Module):
    """Two convolutions and what they leave out."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False), nn.BatchNorm2d(after),
        )  # fmt: skip
        self.rest = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.relu(self.body(x) + self.rest(x))


class ResNet(nn.Module):
    """Three residual blocks, of 16, 32 and 64 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
            Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES),
        )  # fmt: skip

    def forward(self, image: Tensor) -> Tensor:
        return self.layers(image)


class Pairs(nn.Module):
    """Scenes of two digits, 8 by 16 -> a number for each of 100 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(128, 400), nn.ReLU(), nn.Linear(400, 200), nn.ReLU(), nn.Linear(200, CLASSES**2)
        )

    def forward(self, image: Tensor) -> Tensor:
        return self.layers(image)


class Boxes(nn.Module):
    """16 by 16 -> the box x0, y0, x1, y1 of the digit in it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, 4),
        )  # fmt: skip

    def forward(self, image: Tensor) -> Tensor:
        return self.layers(image)
