"""A parity model as a worker loads it: an architecture, weights, and the card that says what they are for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spillway.agents.coding.card import place_of, read_card, read_weights
from spillway.agents.models.loading import construct, is_torch_module, load_model
from spillway.lineage.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spillway.agents.models.inputs import Inputs
    from spillway.agents.models.loading import Model


PARITY: Final = "spillway.agents.coding.parity:Parity"
SHARED: Final = "spillway.agents.coding.parity:Shared"


class Parity:
    """Answers parity queries with the float outputs that the card of its row names (ParM, section 3.3).

    An architecture that is no torch module but has a `predict` is used as it is, without weights: a linear model is its
    own parity model.
    """

    def __init__(self, folder: str, row: int) -> None:
        """Raises ModelError where the card, the weights or the architecture are missing or do not fit together."""
        where = Path(folder)
        card = read_card(where, row)
        self._place = place_of(where, row)
        self._outputs = card.outputs
        self.version = card.weights[:12]
        weights = read_weights(where, card)
        model = construct(f"{self._place}: architecture {card.architecture!r}", card.architecture, card.arguments)
        self._model = self._with_weights(model, weights)

    def predict(self, batch: list[Inputs]) -> list[dict[str, Any]]:
        return [self._told(answer) for answer in self._model.predict(batch)]

    def _with_weights(self, model: Any, weights: dict[str, Any]) -> Model:
        if is_torch_module(model):
            import torch  # noqa: PLC0415 - only where the architecture is a module, which has imported it

            from spillway.agents.models.torch_module import TorchModel  # noqa: PLC0415

            try:
                model.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
            except (RuntimeError, TypeError) as error:
                raise ModelError(f"{self._place}: its weights do not fit its architecture: {error}") from error
            return TorchModel(model)
        if not callable(getattr(model, "predict", None)):
            raise ModelError(f"{self._place}: {type(model).__name__} is not a torch module and has no method predict")
        return model  # type: ignore[no-any-return]

    def _told(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        told = renamed(answer, self._outputs)
        if told is None:
            raise ModelError(
                f"{self._place} answers {', '.join(answer)}, but its card lists {', '.join(self._outputs)}"
            )
        made = {n: np.asarray(told[n]).astype(tensor.dtype, copy=False) for n, tensor in self._outputs.items()}
        for name, value in made.items():
            if value.shape != self._outputs[name].shape:
                wanted = self._outputs[name].shape
                raise ModelError(f"{self._place}: output {name!r} has shape {value.shape}, but its card says {wanted}")
        return made


class Shared:
    """The deployed model, and its parity model for queries whose parameters have `PARITY`: memory of both.

    A batch is of one kind.
    """

    def __init__(self, folder: str, row: int, stage: str, model: str, arguments: dict[str, Any], device: str) -> None:
        """Raises ModelError as `Parity` and `load_model`."""
        self._own = load_model(stage, model, arguments, device)
        self._parity = Parity(folder, row)
        self.version = getattr(self._own, "version", "")

    def predict(self, batch: list[Inputs]) -> Sequence[Mapping[str, Any]]:
        return self._parity.predict(batch) if PARITY in batch[0].parameters else self._own.predict(batch)


def renamed(answer: Mapping[str, Any], names: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The answer by these names, a single one whatever its own; None where the names differ."""
    if len(answer) == len(names) == 1:
        return dict(zip(names, answer.values(), strict=True))
    return answer if answer.keys() == names.keys() else None
