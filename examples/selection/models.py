"""The members of the ensemble in pipeline.yaml."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from examples.clipper.training import TRAINED_ON
from examples.selection.training import fitted, inverted

if TYPE_CHECKING:
    from collections.abc import Sequence


class Digits:
    """One of the five models. As long as the file `broken` exists, it sees its inputs inverted, and says nothing of it.

    A share `tail` of its batches takes `sleep` seconds longer.
    """

    def __init__(
        self, kind: str, digits: int = TRAINED_ON, broken: str | None = None, tail: float = 0.0, sleep: float = 0.5
    ) -> None:
        self._predict = fitted(kind, digits)
        self._broken = Path(broken) if broken else None
        self._tail = tail
        self._sleep = sleep
        self._chance = Random(0)
        self.deterministic = broken is None

    def predict(self, batch: Sequence[Any]) -> list[dict[str, Any]]:
        rows = np.stack([np.asarray(query["x"], np.float32) for query in batch])
        if self._broken is not None and self._broken.exists():
            rows = inverted(rows)
        if self._tail and self._chance.random() < self._tail:
            time.sleep(self._sleep)
        return [{"label": int(label)} for label in self._predict(rows).argmax(1)]
