"""AP and FD: cameras' frames -> a detector -> who it is and where (LSTM) -> where it will be (LSTM) -> what to do.

AP, the auto-pilot, is that chain: two stateful stages stand next to each other. FD watches a road with two cameras
side by side: a detector and a tracker for each, in parallel, and a join that tells the distance from both.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.hams.pipelines.scenes import drives
from benchmarks.hams.pipelines.weights import Recurrent, Weights, fit, streams, trained

if TYPE_CHECKING:
    from spillway.agents.models.torch_streams import Streams

SEEN = 12  # of a detection: y, x and ten probabilities
WIDTH = 48
Batch = Sequence[dict[str, Any]]


class Detector(nn.Module):
    """Frames (n, SIZE, SIZE), uint8 -> where the digit is, y and x in 0..1, and the chance of each label: (n, SEEN).

    Each cell of a coarse grid says how likely the digit is there, how far off its middle, and which one it would be.
    """

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 12, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(12, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 1 + SEEN, 1),
        )  # fmt: skip

    def logits(self, frame: Tensor) -> Tensor:
        said = self.body(frame.float().div(128).sub(0.6).unsqueeze(1)).flatten(2)
        here = functional.softmax(said[:, :1], 2)
        side = round(said.shape[2] ** 0.5)
        steps = (torch.arange(side, device=frame.device) + 0.5) / side
        middles = torch.cartesian_prod(steps, steps).t()
        return torch.cat((((said[:, 1:3] / side + middles) * here).sum(2), (said[:, 3:] * here).sum(2)), 1)

    def forward(self, frame: Tensor) -> Tensor:
        said = self.logits(frame)
        return torch.cat((said[:, :2], functional.softmax(said[:, 2:], 1)), 1)


def follower(values: int) -> Recurrent:
    """What is seen of one camera -> as many values after each."""
    return Recurrent(values, WIDTH, values)


def frames(batch: Batch, name: str = "frame") -> Tensor:
    return torch.from_numpy(np.stack([query[name] for query in batch]))


def detections(batch: Batch) -> Tensor:
    return torch.stack([torch.as_tensor(query["seen"]) for query in batch]).unsqueeze(1)


def centres(batch: Batch) -> Tensor:
    return torch.stack([torch.as_tensor(query["centre"]) for query in batch]).unsqueeze(1)


def tracks(said: Tensor, batch: Batch) -> list[dict[str, Any]]:
    """Where it is, and which digit, by all that was seen of it."""
    best = said[:, 0, 2:].argmax(1).tolist()
    return [
        {"camera": query["camera"], "centre": row[0, :2].numpy(), "label": label}
        for query, row, label in zip(batch, said, best, strict=True)
    ]


def ways(said: Tensor, batch: Batch) -> list[dict[str, Any]]:
    return [
        {"camera": query["camera"], "label": query["label"], "centre": query["centre"], "later": row[0].numpy()}
        for query, row in zip(batch, said, strict=True)
    ]


class Detect:
    """Stateless: the frame under that name -> seen (SEEN,). `camera` is handed on: the stages behind remember by it."""

    def __init__(self, frame: str = "frame", *, untrained: bool = False) -> None:
        self.frame = frame
        self.net = trained(Detector(), "detect", train, untrained=untrained)

    @torch.inference_mode()
    def predict(self, batch: Batch) -> list[dict[str, Any]]:
        seen = self.net(frames(batch, self.frame)).numpy()
        return [{"camera": query["camera"], "seen": row} for query, row in zip(batch, seen, strict=True)]


def track(*, untrained: bool = False) -> Streams:
    return streams(partial(follower, SEEN), "track", train, "camera", detections, tracks, untrained=untrained)


def foresee(*, untrained: bool = False) -> Streams:
    return streams(partial(follower, 2), "foresee", train, "camera", centres, ways, untrained=untrained)


class Steer:
    """Stateless, the end of AP: keeps clear of where the digit will be."""

    def predict(self, batch: Batch) -> list[dict[str, Any]]:
        return [
            {"camera": query["camera"], "label": query["label"], "turn": "left" if query["later"][1] > 0.5 else "right"}
            for query in batch
        ]


class Fuse:
    """Stateless, the end of FD: two tracks -> who it is, and how near, by how far apart the cameras see it."""

    def predict(self, batch: Batch) -> list[dict[str, Any]]:
        return [
            {
                "label": query["left.label"],
                "sure": query["left.label"] == query["right.label"],
                "near": float(abs(query["left.centre"][1] - query["right.centre"][1])),
            }
            for query in batch
        ]


def train() -> Weights:
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
    tracker, predictor = follower(SEEN), follower(2)
    fit(tracker, lambda rows: _tracking(tracker(seen[rows])[0], centres[rows], labels[rows]), len(scenes), 150)
    with torch.no_grad():
        tracked = tracker(seen)[0][:, :, :2]
    fit(predictor, lambda rows: 100 * functional.mse_loss(predictor(tracked[rows])[0], later[rows]), len(scenes), 200)
    return {"detect": detector.state_dict(), "track": tracker.state_dict(), "foresee": predictor.state_dict()}


def _sighting(said: Tensor, centres: Tensor, labels: Tensor) -> Tensor:
    return 30 * functional.mse_loss(said[:, :2], centres) + functional.cross_entropy(said[:, 2:], labels)


def _tracking(said: Tensor, centres: Tensor, labels: Tensor) -> Tensor:
    return _sighting(said.flatten(0, 1), centres.flatten(0, 1), labels.flatten())
