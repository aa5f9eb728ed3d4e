"""The four stages' models: detect -> (recognise, quality) -> assemble."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from examples.plates.networks import Calibrator, Detector, QualityNet, Recogniser, crop, peaks
from examples.plates.training import features, trained

Batch = list[dict[str, Any]]


def stacked(batch: Batch) -> torch.Tensor:
    """The batch's scenes (n, 1, HEIGHT, WIDTH) in 0..1."""
    return torch.from_numpy(np.stack([query["image"] for query in batch])).float().div(255).unsqueeze(1)


class Detect:
    """Finds the digits: image -> crops (digits, 16, 16), boxes (digits, 2) as y, x of their centres."""

    def __init__(self) -> None:
        self.net = trained(Detector(), "detect")

    @torch.inference_mode()
    def predict(self, batch: Batch) -> Batch:
        images = stacked(batch)
        found = peaks(self.net(images))
        return [
            {"image": query["image"], "crops": crop(image[0], centres).numpy(), "centres": centres.numpy()}
            for query, image, centres in zip(batch, images, found, strict=True)
        ]


def share(outputs: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Each successor of detect gets only what it needs."""
    return {"recognise": {"crops": outputs["crops"]}, "quality": {"image": outputs["image"]}}


class Recognise:
    """Reads the digits: crops -> digits (n,) and the probability of each. One forward pass for the whole batch."""

    def __init__(self) -> None:
        self.net = trained(Recogniser(), "recognise")

    @torch.inference_mode()
    def predict(self, batch: Batch) -> Batch:
        counts = [len(query["crops"]) for query in batch]
        crops = torch.from_numpy(np.concatenate([query["crops"] for query in batch])).unsqueeze(1)
        best = torch.softmax(self.net(crops), 1).max(1)
        return [
            {"digits": digits.numpy().astype(np.int8), "probabilities": probabilities.numpy()}
            for digits, probabilities in zip(best.indices.split(counts), best.values.split(counts), strict=True)
        ]


class Quality:
    """Judges the picture: image -> noise in 0..1."""

    def __init__(self) -> None:
        self.net = trained(QualityNet(), "quality")

    @torch.inference_mode()
    def predict(self, batch: Batch) -> Batch:
        return [{"noise": noise} for noise in self.net(stacked(batch)).tolist()]


class Assemble:
    """Joins both branches: the plate's text, and the calibrated probability that all of it is right."""

    def __init__(self) -> None:
        self.net = trained(Calibrator(), "assemble")

    @torch.inference_mode()
    def predict(self, batch: Batch) -> Batch:
        seen = torch.stack(
            [features(torch.from_numpy(q["recognise.probabilities"]), q["quality.noise"]) for q in batch]
        )
        texts = ["".join(map(str, query["recognise.digits"])) for query in batch]
        return [
            {"plate": text, "confidence": confidence}
            for text, confidence in zip(texts, torch.sigmoid(self.net(seen)).tolist(), strict=True)
        ]
