"""A stateful model served as an ordinary one: `replication: none`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from spillway.agents.models.stateful import Machine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spillway.agents.models.inputs import Inputs
    from spillway.agents.models.stateful import StatefulModel


class EmulatedModel:
    """A batch of n takes `duration(n)` seconds of wall time."""

    version = "emulated"
    deterministic = True

    def __init__(self, duration: Callable[[int], float]) -> None:
        self._duration = duration

    def predict(self, batch: list[Inputs]) -> list[dict[str, object]]:
        until = time.perf_counter() + self._duration(len(batch))
        while (left := until - time.perf_counter()) > 0:
            time.sleep(left)
        return [dict(query) for query in batch]


class BareModel:
    """Computes and then updates; its state lives and ends with the process.

    What raises in `compute` changes nothing; after an update that raised every batch fails, as the machine refuses.
    """

    def __init__(self, place: str, model: StatefulModel) -> None:
        """`place` begins what errors say. Raises ModelError for a model that is no stateful one."""
        self._machine = Machine(place, model)
        self.version = str(getattr(model, "version", "") or "")
        inputs = getattr(model, "input_signature", None)
        if inputs:
            self.input_signature = inputs
        if (example := getattr(model, "example", None)) is not None:
            self.example = example

    def predict(self, batch: list[Inputs]) -> Sequence[Mapping[str, Any]]:
        outputs = self._machine.compute(batch)
        self._machine.update()
        return outputs
