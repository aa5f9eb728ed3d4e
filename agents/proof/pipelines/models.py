"""The models of the stages of a drawn pipeline: functions of their inputs alone, which anyone can compute again."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VALUE, TO = "v", "to"  # outputs: what a stage made, and the successors that it is for
MATRIX: Final = np.array([[1.0, 2.0, 0.0, 0.0], [0.0, 1.0, -1.0, 0.0], [0.0, 0.0, 1.0, 3.0], [1.0, 0.0, 0.0, 1.0]])
_BITS: Final = 15  # of a number in a vector: sums and products stay whole


class RefusedError(Exception):
    """The model raises for these inputs."""


def number_of(*texts: str) -> int:
    """Return a number of 60 bits that these texts make, the same in every process."""
    return int(sha256("\0".join(texts).encode()).hexdigest()[:15], 16)


def vector_of(number: int) -> Any:
    """Return four whole numbers, as floats, that a number makes."""
    return np.array([float(number >> _BITS * place & (1 << _BITS) - 1) for place in range(len(MATRIX))])


def answer(
    inputs: Mapping[str, Any],
    stage: str,
    options: Sequence[Sequence[str]] = (),
    raises: int = 0,
    pad: int = 0,
    *,
    vector: bool = False,
) -> dict[str, Any]:
    """Return a stage's outputs for these inputs. Raises RefusedError for one in `raises` of all inputs.

    `options`: sets of successors, of which the inputs choose one; none where the stage says no successors. `pad`: how
    many characters more the outputs have. `vector`: whether the value is a vector.
    """
    values = {name: value for name, value in inputs.items() if name.rpartition(".")[2] == VALUE}
    parts = sorted((name, str(np.asarray(each).tolist())) for name, each in values.items())
    number = number_of(stage, *(text for part in parts for text in part))
    if raises and number % raises == 0:
        raise RefusedError(f"{stage} refuses {number}")
    outputs: dict[str, Any] = {VALUE: vector_of(number) if vector else f"{stage}{number:x}"}
    if options:
        outputs[TO] = list(options[number // 64 % len(options)])
    if pad:
        outputs["pad"] = pad * "x"
    return outputs


def linear(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a vector times `MATRIX`; of a text, such as a default, the vector that it makes."""
    value = inputs[VALUE]
    return {VALUE: MATRIX @ (vector_of(number_of(value)) if isinstance(value, str) else np.asarray(value))}


def answer_of(model: str, inputs: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a model, `module:Class`, answers. Raises RefusedError as `answer`."""
    return linear(inputs) if model == LINEAR else answer(inputs, **arguments)


class Hashes:
    """A stage's model. `arguments`: as of `answer`."""

    deterministic = True

    def __init__(self, **arguments: Any) -> None:
        self._arguments = arguments

    def predict(self, batch: list[Any]) -> list[dict[str, Any]]:
        return [answer(dict(query), **self._arguments) for query in batch]


class Linear:
    """The model of a stage that codes, and its own parity model."""

    deterministic = True

    def predict(self, batch: list[Any]) -> list[dict[str, Any]]:
        return [linear(query) for query in batch]


HASHES, LINEAR = f"{__name__}:{Hashes.__name__}", f"{__name__}:{Linear.__name__}"


def choose(outputs: Mapping[str, Any]) -> list[str]:
    """Return the successors that outputs are for."""
    return list(outputs[TO])


def split(outputs: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return a share of its own for each successor that outputs are for."""
    return {name: share(outputs, name) for name in outputs[TO]}


def share(outputs: Mapping[str, Any], successor: str) -> dict[str, Any]:
    return {VALUE: f"{outputs[VALUE]}>{successor}"}
