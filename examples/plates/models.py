"""The four stages' models: detect -> (recognise, quality) -> assemble."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from examples.plates.networks import Calibrator, Detector, QualityNet, Readers, all_looks, crop, judge, peaks
from examples.plates.training import features, trained

Batch = list[dict[str, Any]]


def stacked(batch: Batch) -> torch.Tensor:
    """The batch's scenes (n, 1, HEIGHT, WIDTH) in 0..1."""
    return torch.from_numpy(np.stack([query["image"] for query in batch])).float().div(255).unsqueeze(1)


class Detect:
    """Finds the digits: image -> patches (digits, PATCH, PATCH), centres (digits, 2) as y, x."""

    def __init__(self) -> None:
        self.net = trained(Detector(), "detect")

    @torch.inference_mode()
    def predict(self, batch: Batch) -> Batch:
        found = peaks(self.net(stacked(batch)))
        return [
            {
                "image": query["image"],
                "patches": crop(torch.from_numpy(query["image"]), centres).numpy(),
                "centres": centres.numpy(),
            }
            for query, centres in zip(batch, found, strict=True)
        ]


def share(outputs: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Each successor of detect gets only what it needs."""
    return {"recognise": {"patches": outputs["patches"]}, "quality": {"image": outputs["image"]}}


class Recognise:
    """Reads the digits: patches -> digits (n,) and the probability of each, looking at every digit many times.

    This is where the pipeline's time goes.
    """

    def __init__(self) -> None:
        self.net = trained(Readers(), "recognise")
        self.looks = all_looks()

    @torch.inference_mode()
    def predict(self, batch: Batch) -> Batch:
        read = []
        for query in batch:
            patches = torch.from_numpy(query["patches"]).float().div(255)
            best = judge(self.net, patches, self.looks).max(1)
            read.append({"digits": best.indices.numpy().astype(np.int8), "probabilities": best.values.numpy()})
        return read


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
