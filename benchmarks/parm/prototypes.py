"""A task that is hard to reconstruct: smooth prototypes that share a base, moved, lit and drowned in noise.

20 classes of 16 by 16; a sum of two has the noise of both, so what a network reads of single images with sqrt(2) times
the noise is about as much as one can read of a sum.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Images = dict[str, NDArray[np.generic]]

CLASSES: Final = 20
_SIDE: Final = 16
_SHIFT: Final = 2  # pixels
_NOISE: Final = 1.5
_OWN: Final = 0.58  # of a class, beside the base's 1: for an accuracy of about 90 %
_TRAINING, _VALIDATION, _TEST = 4_000, 1_000, 2_000
_EPOCHS: Final = 20


def images(seed: int, part: int, count: int, noise: float = _NOISE) -> Images:
    """Draw queries of a world of this seed."""
    world, draw = np.random.default_rng(seed), np.random.default_rng((seed, part))
    prototypes = _smooth(world, 1) + _OWN * _smooth(world, CLASSES)
    label = draw.integers(CLASSES, size=count)
    shifts = draw.integers(-_SHIFT, _SHIFT + 1, (count, 2))
    moved = np.stack([np.roll(prototypes[n], shift, (0, 1)) for n, shift in zip(label, shifts, strict=True)])
    lit = moved * draw.uniform(0.7, 1.3, (count, 1, 1)) + draw.uniform(-0.3, 0.3, (count, 1, 1))
    noisy = lit + noise * draw.standard_normal(lit.shape)
    return {"image": noisy.astype(np.float32)[:, None], "label": label}


def training(seed: int) -> Images:
    return images(seed, 1, _TRAINING)


def test(seed: int) -> Images:
    return images(seed, 3, _TEST)


class Network(nn.Module):
    """Two convolutions and two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, CLASSES),
        )  # fmt: skip

    def forward(self, image: Tensor) -> Tensor:
        scores: Tensor = self.layers(image)
        return scores


class Deployed(Network):
    """The network, trained on a world."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.load_state_dict(_trained(seed, _NOISE))


def ceiling(seed: int) -> float:
    """The accuracy of the same network on single images with the noise of two."""
    network = Network()
    network.load_state_dict(_trained(seed, 2**0.5 * _NOISE))
    return _accuracy(network, images(seed, 3, _TEST, 2**0.5 * _NOISE))


@cache
def _trained(seed: int, noise: float) -> dict[str, Tensor]:
    """The weights that were best on a validation set."""
    given, kept = images(seed, 1, _TRAINING, noise), images(seed, 2, _VALIDATION, noise)
    image, label = torch.from_numpy(given["image"]), torch.from_numpy(given["label"])
    best, weights = -1.0, {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = Network()
        optimizer = torch.optim.Adam(network.parameters(), 1e-3, weight_decay=1e-5)
        for _ in range(_EPOCHS):
            for some in torch.randperm(len(label)).split(64):  # type: ignore[no-untyped-call]
                optimizer.zero_grad()
                nn.functional.cross_entropy(network(image[some]), label[some]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            if (found := _accuracy(network, kept)) > best:
                best, weights = found, {name: value.clone() for name, value in network.state_dict().items()}
    return weights


def _accuracy(network: nn.Module, given: Images) -> float:
    with torch.no_grad():
        scores = network(torch.from_numpy(given["image"])).numpy()
    return float((scores.argmax(axis=1) == given["label"]).mean())


def _smooth(draw: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Smooth fields of variance 1, whose edges meet."""
    frequency = np.fft.fftfreq(_SIDE)
    low = np.exp(-8 * np.pi**2 * (frequency[:, None] ** 2 + frequency[None] ** 2))
    fields = np.fft.ifft2(np.fft.fft2(draw.standard_normal((count, _SIDE, _SIDE))) * low).real
    return np.asarray(fields / fields.std(axis=(1, 2), keepdims=True))
