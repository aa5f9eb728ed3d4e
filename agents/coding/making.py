"""Making a stage's parity models: weights and cards in its parity folder, and the reference beside them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.agents.coding.card import Card, deployed_hash, digest_of, weights_file, write_card, write_reference
from spillway.agents.coding.codes import code_of
from spillway.agents.coding.data import answers, rows_of, tensors
from spillway.agents.coding.evaluation import CLASSES, evaluate
from spillway.agents.coding.parity import Parity
from spillway.agents.models.loading import construct, is_torch_module, load_model
from spillway.lineage.errors import ModelError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from spillway.agents.coding.data import Data
    from spillway.agents.coding.evaluation import Grades
    from spillway.agents.coding.training import Effort
    from spillway.topology.spec import StageSpec


@dataclass(frozen=True, slots=True)
class Made:
    """One row's parity model, as it was made."""

    card: Card
    grades: Grades
    seconds: float
    """Of training."""
    epoch: int
    """After which it was best on the queries kept aside; 0: it was not trained."""


def deployed_answers(stage: StageSpec, data: Data) -> dict[str, Any]:
    """What a stage's model answers. Raises ModelError for what cannot be coded, UsageError where there is no model."""
    if stage.model is None:
        raise UsageError(f"stage {stage.name!r} is emulated and has no answers to code")
    model = load_model(stage.name, stage.model, stage.arguments, stage.workers.device)
    return answers(f"stage {stage.name!r}: model {stage.model!r}", model, rows_of(data.inputs, range(len(data))))


class Maker:
    """Makes rows of one stage's parity models with the same data; the deployed model runs once."""

    def __init__(self, stage: StageSpec, folder: Path, data: Data, test: Data, *, k: int, encoder: str) -> None:
        """`test`: queries that grades are made on, and nothing is trained with."""
        if min(len(data), len(test)) < k:
            raise UsageError(f"{len(data)} training queries and {len(test)} test queries are too few for groups of {k}")
        self._stage, self._folder = stage, folder
        self._data, self._test = data, test
        self._k, self._encoder = k, encoder
        self._code = code_of(encoder, k)
        self._outputs = deployed_answers(stage, data)
        own = construct(f"stage {stage.name!r}", str(stage.model), stage.arguments)
        self._weights: dict[str, Any] = dict(own.state_dict()) if is_torch_module(own) else {}
        self._expected = deployed_answers(stage, test)

    def make(
        self,
        row: int,
        effort: Effort,
        *,
        architecture: str | None,
        metric: str = "accuracy",
        progress: Callable[[int], None] = lambda _epoch: None,
    ) -> Made:
        """Train a row's parity model, grade it and write it. `architecture`: the stage's own model's where None.

        An architecture that is no torch module is taken as it is. Raises ModelError where it is none, and has no
        `predict` either, or where it cannot be trained.
        """
        name, arguments, model = self._architecture(architecture)
        began = time.monotonic()
        weights: dict[str, Any] = {}
        best = 0
        if is_torch_module(model):
            from spillway.agents.coding.training import fit  # noqa: PLC0415 - torch, only where the model has imported it

            arrays = self._data.inputs, self._outputs
            begin, scores = self._begin(model), metric in CLASSES
            best = fit(model, *arrays, self._code, self._k, row, effort, progress, begin=begin, scores=scores)
            weights = {key: value.numpy() for key, value in model.state_dict().items()}
        seconds = time.monotonic() - began
        self._folder.mkdir(parents=True, exist_ok=True)
        file = weights_file(self._folder, row)
        np.savez(file, **weights)
        card = Card(
            model=str(self._stage.model),
            model_hash=deployed_hash(str(self._stage.model), self._stage.arguments),
            k=self._k,
            row=row,
            encoder=self._encoder,
            architecture=name,
            arguments=arguments,
            inputs=tensors(self._data.inputs),
            outputs=tensors(self._outputs),
            weights=digest_of(file),
            metric=metric,
        )
        write_card(self._folder, card)
        write_reference(self._folder, rows_of(self._data.inputs, [0])[0], rows_of(self._outputs, [0])[0])
        parities = {row: Parity(str(self._folder), row)}
        grades = evaluate(parities, self._code, self._k, self._test, self._expected, metric=metric, seed=effort.seed)
        card = card.model_copy(update={"accuracy": grades.deployed, "degraded": grades.degraded.get(1)})
        write_card(self._folder, card)
        return Made(card, grades, seconds, best)

    def _begin(self, module: Any) -> dict[str, Any] | None:
        """The deployed model's weights, where the module has the same: what tells images apart tells sums apart."""
        wanted = {name: value.shape for name, value in module.state_dict().items()}
        same = {name: value.shape for name, value in self._weights.items()} == wanted
        return self._weights if same else None

    def _architecture(self, named: str | None) -> tuple[str, dict[str, Any], Any]:
        own = str(self._stage.model)
        name = named or own
        arguments = self._stage.arguments if name == own else {}
        place = f"stage {self._stage.name!r}: architecture {name!r}"
        model = construct(place, name, arguments)
        if not is_torch_module(model) and named is None:
            raise ModelError(
                f"{place} is not a torch module, so it cannot be trained as its own parity model; name an "
                "architecture: --architecture module:Class (a linear model can be its own)"
            )
        return name, arguments, model
