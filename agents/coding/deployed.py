"""What a stage codes with: the one place that says whether parity models are for this stage, k and encoder.

`spillway check` and the stage's front ask the same. What is missing, damaged or for something else is refused. Parity
models of another version of the deployed model are not: coding pauses, and the stage serves as if it had none.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spillway.agents.coding.card import ANEW, check_card, outdated, place_of, read_card, read_reference
from spillway.agents.coding.codes import CODES, code_of
from spillway.lineage.errors import ModelError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway.agents.coding.card import Card
    from spillway.agents.coding.codes import Arrays, Code
    from spillway.topology.sections import CodingSpec
    from spillway.topology.spec import StageSpec


@dataclass(frozen=True, slots=True)
class Parities:
    """A stage's parity models, as their cards tell."""

    folder: Path
    cards: Sequence[Card]
    reference: tuple[Arrays, Arrays]
    outdated: str = ""
    """Why coding pauses, and what to do; empty where the cards are of the stage's own version."""

    @property
    def expected(self) -> float | None:
        """How accurate answers that are made are, as far as that was measured."""
        grades = [card.degraded for card in self.cards if card.degraded is not None]
        return min(grades) if grades else None


def read_parities(stage: StageSpec, spec: CodingSpec, beside: Path) -> Parities:
    """Read what a stage's parity models are for. `beside`: the pipeline file's folder. Imports no code of the user's.

    Raises ModelError that begins with the stage, where they are missing, for another model, k, row, encoder or other
    tensors than the stage's, cannot be summed, or where the stage's default outputs are not the model's.
    """
    folder = Path(spec.parity)
    folder = folder if folder.is_absolute() else beside / folder
    try:
        cards = [read_card(folder, row) for row in range(spec.rows)]
        for card in cards:
            check_card(card, folder, str(stage.model), spec.k, spec.encoder)
            _check_tensors(card, cards[0], stage, place_of(folder, card.row))
        if stage.default is not None and spec.finish is None:
            _check_default(cards[0], stage.default_outputs)
        why = next(filter(None, (outdated(card, folder, stage.arguments) for card in cards)), "")
        reference = read_reference(folder, cards[0])
        if spec.encoder in CODES:
            CODES[spec.encoder](spec.k).encode([reference[0]] * spec.k, 0)
    except (ModelError, UsageError) as error:
        raise ModelError(f"stage {stage.name!r}: {error}") from error
    return Parities(folder, cards, reference, why)


def load_code(stage: StageSpec, spec: CodingSpec) -> Code:
    """The stage's encoder and decoder. Raises ModelError that begins with the stage."""
    try:
        return code_of(spec.encoder, spec.k)
    except (ModelError, UsageError) as error:
        raise ModelError(f"stage {stage.name!r}: {error}") from error


def _check_tensors(card: Card, first: Card, stage: StageSpec, place: str) -> None:
    for what, tensors in (("input", card.inputs), ("output", card.outputs)):
        for name, tensor in tensors.items():
            if not tensor.dtype.startswith("float"):
                raise ModelError(
                    f"{place}: {what} {name!r} is {tensor.dtype}, which cannot be summed; let the model take and "
                    "return only floats, and derive other outputs from them in the stage's coding.finish"
                )
    if (card.inputs, card.outputs) != (first.inputs, first.outputs):
        raise ModelError(f"{place} is for other tensors than the one of row {first.row}; train both again")
    for name, said in (stage.inputs or {}).items():
        tensor_in = card.inputs.get(name)
        if tensor_in is None or not said.takes(tensor_in.dtype, tensor_in.shape):
            found = "no" if tensor_in is None else f"{tensor_in.dtype} {list(tensor_in.shape)} as"
            raise ModelError(f"{place} has {found} input {name!r}, and the stage declares {said.text}; {ANEW}")


def _check_default(card: Card, outputs: Arrays) -> None:
    for name, tensor in card.outputs.items():
        if not tensor.fits(outputs.get(name)):
            raise ModelError(
                f"its default has no output {name!r} that is {tensor.dtype} {list(tensor.shape)}, as the model "
                "returns; write it as {dtype: ..., data: [...]}"
            )
