"""An emulated accelerator: it takes the time that a real one would, burns no CPU and passes its input on."""

from __future__ import annotations

import bisect
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agents.models.inputs import Inputs


class EmulatedModel:
    """A batch of n takes `alpha + beta * n` seconds, or what the table says for n.

    Between two sizes of the table the time is interpolated; beyond its ends it goes on along the nearest segment.
    """

    version = "emulated"

    def __init__(
        self, alpha: float | None = None, beta: float | None = None, table: Mapping[int, float] | None = None
    ) -> None:
        self._alpha = alpha or 0.0
        self._beta = beta or 0.0
        self._table = sorted((int(size), float(seconds)) for size, seconds in (table or {}).items())

    def duration(self, size: int) -> float:
        """Say how long a batch of `size` takes, in seconds."""
        if not self._table:
            return self._alpha + self._beta * size
        if len(self._table) == 1:
            return self._table[0][1]
        right = min(max(bisect.bisect_left(self._table, (size, 0.0)), 1), len(self._table) - 1)
        (size0, seconds0), (size1, seconds1) = self._table[right - 1], self._table[right]
        return max(0.0, seconds0 + (seconds1 - seconds0) * (size - size0) / (size1 - size0))

    def predict(self, batch: list[Inputs]) -> list[dict[str, object]]:
        """Wait as long as the batch takes; return the inputs."""
        until = time.perf_counter() + self.duration(len(batch))
        while (left := until - time.perf_counter()) > 0:
            time.sleep(left)
        return [dict(query) for query in batch]
