"""Trains the recurrent networks, in some 20 seconds of a processor.

Online learners (`labelling`, `stocks`' regressions) need none of this: they start blank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.hams.pipelines import speech, stocks
from benchmarks.hams.pipelines.scenes import drives
from benchmarks.hams.pipelines.vision import SEEN, Detector, Follower

if TYPE_CHECKING:
    from collections.abc import Callable

SEED = 11
Weights = dict[str, dict[str, Tensor]]


def fit(
    net: nn.Module, loss: Callable[[Tensor], Tensor], count: int, steps: int, *, size: int = 32, rate: float = 1e-2
) -> None:
    """Adam on random batches, on a one-cycle schedule; `loss` takes the indices of a batch."""
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss(torch.randint(count, (size,))))
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    net.eval()


def train_speech() -> Weights:
    """Word at each frame; mood and subject after each word, on the words as they were spoken."""
    talks = [speech.talk(12, seed) for seed in range(300)]
    sound, ends, moods, subjects = (
        torch.from_numpy(np.stack([getattr(each, name) for each in talks]))
        for name in ("sound", "words", "moods", "subjects")
    )
    transcriber = speech.Transcriber()
    fit(transcriber, lambda rows: _entropy(transcriber(sound[rows])[0], ends[rows]), len(talks), 120)
    nets: dict[str, nn.Module] = {"transcribe": transcriber}
    for name, classes, wanted in (("sentiment", 2, moods), ("topic", 3, subjects)):
        nets[name] = _listener(ends, wanted, classes)
    return {name: net.state_dict() for name, net in nets.items()}


def _listener(ends: Tensor, wanted: Tensor, classes: int) -> nn.Module:
    net = speech.Listener(classes)
    fit(net, lambda rows: _entropy(net(ends[rows])[0], wanted[rows]), len(ends), 150)
    return net


def train_vision() -> Weights:
    """The detector on single frames; tracker and predictor on what those before them say of the scenes."""
    scenes = drives(300, 16, 0)
    frames = torch.from_numpy(np.stack([shot.frame for scene in scenes for shot in scene]))
    labels = torch.tensor([shot.label for scene in scenes for shot in scene])
    centres = torch.from_numpy(np.stack([shot.centre for scene in scenes for shot in scene]))
    later = torch.from_numpy(np.stack([shot.later for scene in scenes for shot in scene]))
    detector = Detector()
    fit(
        detector,
        lambda rows: _sighting(detector.logits(frames[rows]), centres[rows], labels[rows]),
        len(frames),
        300,
        size=48,
        rate=5e-3,
    )
    with torch.no_grad():
        seen = torch.cat([detector(part) for part in torch.split(frames, 512)])
    seen, labels, centres, later = (
        each.reshape(len(scenes), 16, *each.shape[1:]) for each in (seen, labels, centres, later)
    )
    tracker, predictor = Follower(SEEN, SEEN), Follower(2, 2)
    fit(tracker, lambda rows: _tracking(tracker(seen[rows])[0], centres[rows], labels[rows]), len(scenes), 150)
    with torch.no_grad():
        tracked = tracker(seen)[0][:, :, :2]
    fit(predictor, lambda rows: 100 * functional.mse_loss(predictor(tracked[rows])[0], later[rows]), len(scenes), 200)
    return {"detect": detector.state_dict(), "track": tracker.state_dict(), "foresee": predictor.state_dict()}


def train_stocks() -> Weights:
    """The next return, on other shares than are asked about."""
    shares = torch.from_numpy(np.stack([stocks.returns(60, 1000 + seed) for seed in range(200)])).unsqueeze(2)
    net = stocks.Forecaster()
    fit(net, lambda rows: functional.mse_loss(net(shares[rows, :-1])[0], shares[rows, 1:]), len(shares), 150)
    return {"forecast": net.state_dict()}


def train() -> Weights:
    """Everything from scratch; the networks' weights by name."""
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        return {**train_speech(), **train_vision(), **train_stocks()}


def _entropy(logits: Tensor, wanted: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())


def _sighting(said: Tensor, centres: Tensor, labels: Tensor) -> Tensor:
    return 30 * functional.mse_loss(said[:, :2], centres) + functional.cross_entropy(said[:, 2:], labels)


def _tracking(said: Tensor, centres: Tensor, labels: Tensor) -> Tensor:
    return _sighting(said.flatten(0, 1), centres.flatten(0, 1), labels.flatten())
