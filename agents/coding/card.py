"""The card of a parity model: what it was trained for, so that it is used for nothing else.

A stage's parity folder has for each row `rowN.json`, the card, and `rowN.npz`, the weights; and `reference.npz`: a
query's inputs and the deployed model's outputs, which stand in for a slot of a group that is empty.
"""

from __future__ import annotations

import hashlib
import sys
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pydantic import ValidationError

from spillway.agents.models.adapters import named_file
from spillway.agents.workers.identity import model_hash
from spillway.lineage.errors import ModelError
from spillway.lineage.values.npz import read_npz
from spillway.topology.sections import Section

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


ANEW: Final = "train it again: spillway train parity"


class Tensor(Section):
    """One named tensor of a query or an answer, without the batch."""

    dtype: str
    shape: tuple[int, ...]

    def fits(self, value: Any) -> bool:
        """Whether a value is this tensor, with finite numbers."""
        return (
            isinstance(value, np.ndarray)
            and value.shape == self.shape
            and value.dtype.name == self.dtype
            and bool(np.isfinite(value).all())
        )


class Card(Section):
    """What one row's parity model is for."""

    model: str
    """The deployed model, as its stage names it."""
    model_hash: str | None
    """`deployed_hash` of it."""
    k: int
    row: int
    encoder: str
    architecture: str
    """`module:Class` of the parity model, constructed with `arguments`."""
    arguments: dict[str, Any]
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    weights: str
    """SHA-256 of the file with the weights."""
    accuracy: float | None = None
    """A_a: of the deployed model, on what it was not trained on."""
    degraded: float | None = None
    """A_d: of reconstructions alone, on the same."""
    metric: str = "accuracy"


def read_card(folder: Path, row: int) -> Card:
    """Raises ModelError that names the file and what to do."""
    file = folder / f"row{row}.json"
    try:
        card = Card.model_validate_json(file.read_bytes())
    except FileNotFoundError as error:
        raise ModelError(
            f"there is no parity model of row {row} in {folder}; make one: spillway train parity"
        ) from error
    except (OSError, ValidationError) as error:
        raise ModelError(f"{file} is not the card of a parity model: {error}") from error
    if card.row != row:
        raise ModelError(f"{file} is the card of row {card.row}")
    return card


def check_card(card: Card, folder: Path, model: str, k: int, encoder: str) -> None:
    """Raise ModelError where a card is for another model, another k or encoder."""
    for name, value in {"model": model, "k": k, "encoder": encoder}.items():
        if (own := getattr(card, name)) != value:
            raise ModelError(f"{place_of(folder, card.row)} is for {name} {own!r}, not {value!r}; {ANEW}")


def outdated(card: Card, folder: Path, arguments: dict[str, Any]) -> str:
    """Why a parity model does not belong to the deployed model, of these arguments, as it is now; empty where it does.

    Raises ModelError where its weights cannot be read.
    """
    if card.model_hash is not None and card.model_hash != deployed_hash(card.model, arguments):
        return f"{place_of(folder, card.row)} was made for another version of {card.model}; {ANEW}"
    return _changed(weights_file(folder, card.row), card)


def _changed(file: Path, card: Card) -> str:
    try:
        return "" if digest_of(file) == card.weights else f"{file} does not match its card; {ANEW}"
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error}; {ANEW}") from error


def place_of(folder: Path, row: int) -> str:
    return f"the parity model of row {row} in {folder}"


def deployed_hash(model: str, arguments: dict[str, Any]) -> str | None:
    """`spillway.agents.workers.identity.model_hash`, and of the files that arguments name, weights say.

    What the model reads without being told, and what its module imports, are not part of it.
    """
    own = model_hash(model, arguments)
    files = [file for value in arguments.values() if (file := named_file(value, sys.path)) is not None]
    if own is None or not files:
        return own
    return hashlib.sha256("".join([own, *map(digest_of, files)]).encode()).hexdigest()[:32]


def weights_file(folder: Path, row: int) -> Path:
    return folder / f"row{row}.npz"


def digest_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def read_weights(folder: Path, card: Card) -> dict[str, Any]:
    """The arrays of a row's weights. Raises ModelError where the file is not the one that the card tells of."""
    file = weights_file(folder, card.row)
    if changed := _changed(file, card):
        raise ModelError(changed)
    return _arrays(file)


def _arrays(file: Path) -> dict[str, Any]:
    try:
        return read_npz(file)
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} cannot be read: {error}; {ANEW}") from error


def read_reference(folder: Path, card: Card) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """The reference's inputs and outputs. Raises ModelError where they are missing or of other shapes."""
    file = folder / "reference.npz"
    found = _arrays(file)
    inputs = {name: found.get(f"in.{name}") for name in card.inputs}
    outputs = {name: found.get(f"out.{name}") for name in card.outputs}
    wrong = [name for name, value in inputs.items() if not card.inputs[name].fits(value)]
    wrong += [name for name, value in outputs.items() if not card.outputs[name].fits(value)]
    if wrong:
        raise ModelError(f"{file}: {wrong[0]!r} is missing or does not match the card; {ANEW}")
    return inputs, outputs  # type: ignore[return-value] # each fits


def write_reference(folder: Path, inputs: dict[str, NDArray[Any]], outputs: dict[str, NDArray[Any]]) -> None:
    arrays: dict[str, Any] = {f"in.{name}": value for name, value in inputs.items()}
    arrays |= {f"out.{name}": value for name, value in outputs.items()}
    np.savez(folder / "reference.npz", **arrays)


def write_card(folder: Path, card: Card) -> None:
    (folder / f"row{card.row}.json").write_text(card.model_dump_json(indent=1) + "\n", encoding="utf-8")
