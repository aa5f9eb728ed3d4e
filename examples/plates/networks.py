"""The networks of the pipeline: small enough to train in seconds on a CPU, and really trained."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from examples.plates.scenes import DIGIT, HEIGHT, WIDTH

STRIDE = 4  # of the detector's heat map
PATCH = 24  # pixels: what is cut out for a digit, so that it can be looked at shifted and turned
SHIFTS = (-1.0, 0.0, 1.0)  # pixels, by y and by x: how far the detector may be out
TURNS = (-7.0, 0.0, 7.0)  # degrees
READERS = 2


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
    """Views (n, 1, DIGIT, DIGIT) in 0..1 -> logits of the ten digits."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Dropout(0.3), nn.Linear(64 * (DIGIT // 4) ** 2, 96), nn.ReLU(), nn.Linear(96, 10),
        )  # fmt: skip

    def forward(self, views: Tensor) -> Tensor:
        """(n, 10)."""
        return self.body(views)


class Readers(nn.Module):
    """Recognisers that were trained apart: views -> probabilities of the ten digits, the mean of what each says."""

    def __init__(self) -> None:
        super().__init__()
        self.each = nn.ModuleList(Recogniser() for _ in range(READERS))

    def forward(self, views: Tensor) -> Tensor:
        """(n, 10)."""
        return torch.stack([torch.softmax(reader(views), 1) for reader in self.each]).mean(0)


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
    """One scene (HEIGHT, WIDTH), centres (n, 2) -> patches (n, PATCH, PATCH); outside, it goes on as at its edge."""
    steps = torch.arange(PATCH)
    top, left = ((centres - PATCH // 2).round().long()).unbind(1)
    y, x = (top[:, None] + steps).clamp(0, HEIGHT - 1), (left[:, None] + steps).clamp(0, WIDTH - 1)
    return images[y[:, :, None], x[:, None, :]]


def looks(turns: Tensor, shifts: Tensor, zooms: Tensor | float = 1.0) -> Tensor:
    """Turns (n) in degrees, shifts (n, 2) as y, x in pixels, zooms -> where each looks in a patch (n, DIGIT, DIGIT, 2).

    Without a turn, a shift and a zoom it is the patch's middle, pixel by pixel.
    """
    span = zooms * DIGIT / PATCH
    cosine, sine = span * torch.cos(torch.deg2rad(turns)), span * torch.sin(torch.deg2rad(turns))
    y, x = (shifts * 2 / PATCH).unbind(1)
    corners = torch.stack((torch.stack((cosine, -sine, x), 1), torch.stack((sine, cosine, y), 1)), 1)
    return functional.affine_grid(corners, [len(turns), 1, DIGIT, DIGIT], align_corners=False)


def view(patches: Tensor, grid: Tensor) -> Tensor:
    """Patches (n, PATCH, PATCH) and where to look in each -> views (n, 1, DIGIT, DIGIT)."""
    return functional.grid_sample(patches.unsqueeze(1), grid, align_corners=False)


def all_looks() -> Tensor:
    """Every shift with every turn: (looks, DIGIT, DIGIT, 2)."""
    each = torch.cartesian_prod(torch.tensor(TURNS), torch.tensor(SHIFTS), torch.tensor(SHIFTS))
    return looks(each[:, 0], each[:, 1:])


def judge(readers: Readers, patches: Tensor, grid: Tensor) -> Tensor:
    """Probabilities of the digits (n, 10), each the mean over all looks at a patch: what one misreads is outvoted.

    One patch at a time: what the readers make of all looks at several does not fit into a processor's cache.
    """
    each = [readers(view(patch.expand(len(grid), -1, -1), grid)).mean(0) for patch in patches]
    return torch.stack(each) if each else torch.empty(0, 10)
