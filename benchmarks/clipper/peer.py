"""The benchmark's model as MLServer has it, whose own interpreter imports this."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse

from benchmarks.clipper.models import predictor

if TYPE_CHECKING:
    from mlserver.types import InferenceRequest


class Digits(MLModel):  # type: ignore[misc]
    """One of the benchmark's models, by the name in its parameters."""

    async def load(self) -> bool:
        """Train the model."""
        self._predict = predictor(json.loads(self._settings.parameters.extra["of"]))
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Answer a request; MLServer has put several together in one, a row each."""
        rows = NumpyCodec.decode_input(payload.inputs[0])
        labels = NumpyCodec.encode_output("y", np.asarray(self._predict(list(rows))))
        return InferenceResponse(id=payload.id, model_name=self.name, outputs=[labels])
