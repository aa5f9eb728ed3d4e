"""The Image Processing pipeline with models that compute: what they say means nothing, the time they take is real."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


class Preprocess:
    """Crops the middle half, and scales it to 0 to 1."""

    def predict(self, batch: Sequence[Mapping[str, Any]]) -> list[dict[str, NDArray[np.float32]]]:
        edges = [len(query["image"]) // 4 for query in batch]
        return [
            {"image": query["image"][edge:-edge, edge:-edge].astype(np.float32) / 255}
            for query, edge in zip(batch, edges, strict=True)
        ]


class Classify:
    """A convolutional network that nobody trained."""

    widths: ClassVar[tuple[tuple[int, int], ...]] = ((1, 32), (32, 64), (64, 64), (64, 128))

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        for before, after in self.widths:
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
            layers += [nn.MaxPool2d(2)] if after != before else []
        self._network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(after, 10)).eval()

    @torch.inference_mode()
    def predict(self, batch: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        images = torch.from_numpy(np.stack([query["image"] for query in batch]))[:, None]
        return [{"kind": int(kind)} for kind in self._network(images).argmax(dim=1)]


class Fast(Classify):
    """The cascade's fast model, a smaller one. It is as sure as the query says."""

    widths: ClassVar[tuple[tuple[int, int], ...]] = ((1, 8), (8, 16))

    def predict(self, batch: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        images = Preprocess().predict(batch)
        found = super().predict(images)
        return [{**query, **kind, **image} for query, kind, image in zip(batch, found, images, strict=True)]
