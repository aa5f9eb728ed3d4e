"""An emulated accelerator: it takes the time that a real one would, burns no CPU and passes its input on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from agents.models.inputs import Inputs


class EmulatedModel:
    """A batch of n takes `duration(n)` seconds of wall time."""

    version = "emulated"

    def __init__(self, duration: Callable[[int], float]) -> None:
        self._duration = duration

    def predict(self, batch: list[Inputs]) -> list[dict[str, object]]:
        until = time.perf_counter() + self._duration(len(batch))
        while (left := until - time.perf_counter()) > 0:
            time.sleep(left)
        return [dict(query) for query in batch]
