"""A model whose computing takes as long as somebody's GPU would: its own code runs, then the time is waited out.

What is real: states, updates, copies, bytes. What is emulated: how long `compute` or `predict` lasts, at least; waiting
burns no processor, as a GPU's work burns none of the host's.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from spillway.agents.models.loading import load_model, load_stateful_model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class _Paced:
    def __init__(self, model: Any, seconds: float) -> None:
        self._model = model
        self._seconds = seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def _wait(self, began: float) -> None:
        time.sleep(max(0.0, began + self._seconds - time.monotonic()))


class PacedModel(_Paced):
    """A stateless model."""

    def predict(self, batch: Any) -> Sequence[Mapping[str, Any]]:
        began = time.monotonic()
        outputs: Sequence[Mapping[str, Any]] = self._model.predict(batch)
        self._wait(began)
        return outputs


class PacedStateful(_Paced):
    """A stateful model; its `update` takes what it takes."""

    def initialize(self) -> Any:
        return self._model.initialize()

    def compute(self, state: Any, batch: Any) -> Sequence[Mapping[str, Any]]:
        began = time.monotonic()
        outputs: Sequence[Mapping[str, Any]] = self._model.compute(state, batch)
        self._wait(began)
        return outputs

    def update(self, state: Any, batch: Any, outputs: Any) -> Any:
        return self._model.update(state, batch, outputs)


def paced(model: str, seconds: float, arguments: Mapping[str, Any] | None = None) -> PacedModel:
    """Make a stateless model that takes `seconds` a batch, for pipeline files."""
    return PacedModel(load_model("paced", model, arguments or {}), seconds)


def paced_stateful(model: str, seconds: float, arguments: Mapping[str, Any] | None = None) -> PacedStateful:
    """Make a stateful model that takes `seconds` a batch, for pipeline files."""
    return PacedStateful(load_stateful_model("paced", model, arguments or {}), seconds)
