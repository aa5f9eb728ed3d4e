"""The variants in pipeline.yaml: real models, each as slow as on the hardware that it stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from examples.infaas.emulated import Emulated
from examples.selection.training import fitted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Digits(Emulated):
    """A model of handwritten digits, of a kind that `examples.selection.training` knows."""

    def __init__(self, kind: str, takes: Mapping[str | int, float]) -> None:
        self._predict = fitted(kind)
        super().__init__(takes)

    def answers(self, batch: Sequence[Any]) -> list[dict[str, Any]]:
        rows = np.stack([np.asarray(query["x"], np.float32) for query in batch])
        return [{"label": int(label)} for label in self._predict(rows).argmax(1)]
