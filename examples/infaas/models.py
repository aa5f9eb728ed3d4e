"""The variants in pipeline.yaml: real models, each as slow as on the hardware that it stands for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from examples.selection.training import fitted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Digits:
    """A model of handwritten digits. A batch takes as long as `takes` says, seconds by size, on a line in between."""

    def __init__(self, kind: str, takes: Mapping[str | int, float]) -> None:
        self._predict = fitted(kind)
        self._sizes = sorted(int(size) for size in takes)
        seconds = {int(size): float(each) for size, each in takes.items()}
        self._seconds = [seconds[size] for size in self._sizes]

    def predict(self, batch: Sequence[Any]) -> list[dict[str, Any]]:
        until = time.monotonic() + float(np.interp(len(batch), self._sizes, self._seconds))
        rows = np.stack([np.asarray(query["x"], np.float32) for query in batch])
        labels = self._predict(rows).argmax(1)
        time.sleep(max(0.0, until - time.monotonic()))
        return [{"label": int(label)} for label in labels]
