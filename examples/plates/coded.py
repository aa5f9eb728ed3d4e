"""`recognise` as a torch module over plates of one size, so that it can be coded: the rest is done in `finish`.

A plate is padded to the most digits there are; a place without one is a class of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from examples.plates.networks import PATCH, Readers, all_looks, crop, judge
from examples.plates.scenes import MOST, scenes
from examples.plates.training import SEED, trained

if TYPE_CHECKING:
    from numpy.typing import NDArray

NONE = 10  # the class of a place without a digit
OUT = 0.7  # pixels: how far the detector is out


class Recognise(nn.Module):
    """Patches (n, MOST, PATCH, PATCH) -> (n, MOST, 11), the probabilities of the digits, and of none."""

    def __init__(self) -> None:
        super().__init__()
        self.readers = trained(Readers(), "recognise")
        self.looks = all_looks()

    def forward(self, patches: Tensor) -> Tensor:
        there = patches.flatten(2).any(-1)
        answer = functional.one_hot(torch.full(there.shape, NONE)).float()
        answer[there] = functional.pad(judge(self.readers, patches[there], self.looks), (0, 1))
        return answer


class Parity(nn.Module):
    """The architecture of the parity model: one look at each place of a sum of plates."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 32, 5, stride=2, padding=2), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(64 * (PATCH // 4) ** 2, 128), nn.ReLU(), nn.Linear(128, NONE + 1),
        )  # fmt: skip

    def forward(self, patches: Tensor) -> Tensor:
        return self.body(patches.flatten(0, 1).unsqueeze(1)).unflatten(0, (-1, MOST))


def padded(patches: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Patches (digits, PATCH, PATCH) in 0..255 -> (MOST, PATCH, PATCH) in 0..1."""
    made = np.zeros((MOST, PATCH, PATCH), np.float32)
    made[: len(patches)] = patches[:MOST] / np.float32(255)
    return made


def share(outputs: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Each successor of detect gets only what it needs."""
    return {"recognise": {"patches": padded(outputs["patches"])}, "quality": {"image": outputs["image"]}}


def finish(outputs: dict[str, Any]) -> dict[str, Any]:
    """The digits that are there, and the probability of each: as examples.plates.models:Recognise answers."""
    answer = outputs["output"]
    there = answer.argmax(-1) != NONE
    best = answer[there, :NONE]
    return {
        "digits": best.argmax(-1).astype(np.int8),
        "probabilities": best.max(-1).clip(0, 1).astype(np.float32),
    }


def training() -> dict[str, NDArray[Any]]:
    return plates(600, "train", SEED + 2)


def test() -> dict[str, NDArray[Any]]:
    return plates(100, "test", SEED + 3)


def plates(count: int, split: str, seed: int) -> dict[str, NDArray[Any]]:
    """Patches as the detector cuts them out, and the class of each place."""
    draw = np.random.default_rng(seed)
    patches, label = [], np.full((count, MOST), NONE)
    for n, scene in enumerate(scenes(count, split, seed)):
        centres = torch.from_numpy(scene.centres + draw.normal(0, OUT, scene.centres.shape))
        patches.append(padded(crop(torch.from_numpy(scene.image), centres).numpy()))
        label[n, : len(scene.text)] = [int(letter) for letter in scene.text]
    return {"patches": np.stack(patches), "label": label}


def read_right(given: NDArray[Any], truth: NDArray[Any]) -> NDArray[Any]:
    """Of each plate the share of digits that are read right: `spillway train evaluate --metric`."""
    there = truth != NONE
    share: NDArray[Any] = ((given.argmax(-1) == truth) & there).sum(1) / there.sum(1)
    return share
