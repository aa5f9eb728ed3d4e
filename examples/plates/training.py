"""Trains the networks in seconds, once, and keeps their weights in the user's cache folder."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from examples.plates import networks, scenes
from examples.plates.networks import (
    STRIDE,
    Calibrator,
    Detector,
    QualityNet,
    Readers,
    all_looks,
    crop,
    judge,
    looks,
    peaks,
    view,
)
from examples.plates.scenes import HEIGHT, NOISE, WIDTH, Scene

SEED = 20
Report = Callable[[str], None]


def weights_path() -> Path:
    """Where the trained weights are kept: a file named by the sources that made them."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    sources = (
        b"".join(Path(module.__file__ or "").read_bytes() for module in (scenes, networks))
        + Path(__file__).read_bytes()
    )
    return cache / "spillway" / "plates" / f"{hashlib.sha256(sources).hexdigest()[:16]}.pt"


def stack(made: list[Scene]) -> Tensor:
    """Scenes -> (n, 1, HEIGHT, WIDTH) in 0..1."""
    return torch.from_numpy(np.stack([scene.image for scene in made])).float().div(255).unsqueeze(1)


def batches(count: int, size: int, epochs: int) -> Iterator[Tensor]:
    """Shuffled index batches, `epochs` times over."""
    for _ in range(epochs):
        yield from torch.randperm(count).split(size)


def fit(
    net: nn.Module, loss: Callable[[Tensor], Tensor], count: int, *, size: int, epochs: int, rate: float = 3e-3
) -> None:
    """Trains `net` with Adam on a one-cycle schedule; `loss` takes the indices of a batch."""
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    steps = epochs * -(-count // size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    net.train()
    for index in batches(count, size, epochs):
        optimizer.zero_grad(set_to_none=True)
        loss(index).backward()
        optimizer.step()
        schedule.step()
    net.eval()


def train_detector(made: list[Scene], images: Tensor) -> Detector:
    """Heat map of centres by binary cross entropy, offsets by L1 where a centre is."""
    target = torch.zeros(len(made), 3, HEIGHT // STRIDE, WIDTH // STRIDE)
    for row, scene in enumerate(made):
        cells = torch.from_numpy(scene.centres) / STRIDE
        y, x = cells[:, 0].long(), cells[:, 1].long()
        target[row, 0, y, x] = 1
        target[row, 1, y, x] = cells[:, 0] - y - 0.5
        target[row, 2, y, x] = cells[:, 1] - x - 0.5
    net = Detector()

    def loss(index: Tensor) -> Tensor:
        out, want = net(images[index]), target[index]
        here = want[:, :1]
        centre = functional.binary_cross_entropy_with_logits(out[:, :1], here, pos_weight=torch.tensor(8.0))
        return centre + ((out[:, 1:] - want[:, 1:]).abs() * here).sum() / here.sum()

    fit(net, loss, len(made), size=32, epochs=6)
    return net


def train_readers(made: list[Scene], images: Tensor) -> Readers:
    """Cross entropy on the digits, each time looked at anew: shifted as the detector shifts them, turned and zoomed."""
    patches = torch.cat([crop(images[row, 0], torch.from_numpy(scene.centres)) for row, scene in enumerate(made)])
    wanted = torch.tensor([int(letter) for scene in made for letter in scene.text])
    readers = Readers()
    for net in readers.each:
        fit(net, partial(misread, net, patches, wanted), len(wanted), size=128, epochs=6)
    return readers


def misread(net: nn.Module, patches: Tensor, wanted: Tensor, index: Tensor) -> Tensor:
    """The cross entropy of one reader on a batch of random looks."""
    turns, zooms = (torch.rand(len(index)) - 0.5) * 20, 1 + (torch.rand(len(index)) - 0.5) * 0.2
    grid = looks(turns, torch.randn(len(index), 2) * 1.2, zooms)
    return functional.cross_entropy(net(view(patches[index], grid)), wanted[index])


def train_quality(made: list[Scene], images: Tensor) -> QualityNet:
    """Mean squared error against the noise that the generator put in."""
    wanted = torch.tensor([(scene.noise - NOISE[0]) / (NOISE[1] - NOISE[0]) for scene in made], dtype=torch.float32)
    net = QualityNet()
    fit(net, lambda index: functional.mse_loss(net(images[index]), wanted[index]), len(made), size=32, epochs=6)
    return net


def features(probabilities: Tensor, noise: float) -> Tensor:
    """What the calibrator sees of one plate: its digits' best probabilities (n,) and the scene's noise."""
    if not len(probabilities):
        return torch.tensor([0.0, 0.0, noise, 0.0])
    return torch.tensor([float(probabilities.min()), float(probabilities.mean()), noise, len(probabilities) / 6])


def read(detector: Detector, readers: Readers, quality: QualityNet, images: Tensor) -> list[tuple[str, Tensor]]:
    """Images -> per scene the text that the first three networks read, and the calibrator's features."""
    with torch.inference_mode():
        noises, grid = quality(images).tolist(), all_looks()
        out = []
        for row, centres in enumerate(peaks(detector(images))):
            best = judge(readers, crop(images[row, 0], centres), grid).max(1)
            out.append(("".join(str(int(digit)) for digit in best.indices), features(best.values, noises[row])))
        return out


def train_calibrator(reading: list[tuple[str, Tensor]], made: list[Scene]) -> Calibrator:
    """Binary cross entropy: was the whole plate read right? On digits that no other network saw."""
    inputs = torch.stack([seen for _, seen in reading])
    right = torch.tensor([float(text == scene.text) for (text, _), scene in zip(reading, made, strict=True)])
    net = Calibrator()
    fit(
        net,
        lambda index: functional.binary_cross_entropy_with_logits(net(inputs[index]), right[index]),
        len(made),
        size=64,
        epochs=40,
        rate=1e-2,
    )
    return net


def train(report: Report = lambda _: None) -> dict[str, dict[str, Tensor]]:
    """Trains everything from scratch, in seconds; returns the networks' weights by stage."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # networks this small gain little from more, and lose much where cores are shared
    made = scenes.scenes(1600, "train", SEED)
    images = stack(made)
    report("detect: finding digits in 1,600 scenes")
    detector = train_detector(made, images)
    report("recognise: telling digits apart, two networks")
    readers = train_readers(made, images)
    report("quality: judging the noise")
    quality = train_quality(made, images)
    report("assemble: calibrating the confidence on digits kept aside")
    apart = scenes.scenes(250, "calibrate", SEED + 1)
    calibrator = train_calibrator(read(detector, readers, quality, stack(apart)), apart)
    nets = {"detect": detector, "recognise": readers, "quality": quality, "assemble": calibrator}
    return {name: net.state_dict() for name, net in nets.items()}


def ensure_trained(report: Report = lambda _: None) -> Path:
    """The weights file, trained now if this version of the example never was."""
    path = weights_path()
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            torch.save(train(report), file)
        Path(file.name).replace(path)
    return path


def trained(net: nn.Module, stage: str) -> nn.Module:
    """`net` with the trained weights of `stage`, ready to infer."""
    net.load_state_dict(torch.load(ensure_trained(), weights_only=True)[stage])
    return net.eval()
