"""A model that takes as long as it is told to, for hardware that is not here."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Emulated:
    """Answers nothing, late. A batch takes as long as `takes` says, seconds by size, on a line in between.

    `load`: seconds that it takes to load.
    """

    def __init__(self, takes: Mapping[str | int, float], load: float = 0.0) -> None:
        self._sizes = sorted(int(size) for size in takes)
        seconds = {int(size): float(each) for size, each in takes.items()}
        self._seconds = [seconds[size] for size in self._sizes]
        time.sleep(load)

    def predict(self, batch: Sequence[Any]) -> list[dict[str, Any]]:
        until = time.monotonic() + float(np.interp(len(batch), self._sizes, self._seconds))
        answers = self.answers(batch)
        time.sleep(max(0.0, until - time.monotonic()))
        return answers

    def answers(self, batch: Sequence[Any]) -> list[dict[str, Any]]:
        return [{} for _ in batch]
