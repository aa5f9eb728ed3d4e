"""The model of every stage of a drawn pipeline: a function of its inputs alone, which anyone can compute again."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VALUE, TO = "v", "to"  # outputs: what a stage made, and the successors that it is for


class RefusedError(Exception):
    """The model raises for these inputs."""


def number_of(*texts: str) -> int:
    """Return a number of 60 bits that these texts make, the same in every process."""
    return int(sha256("\0".join(texts).encode()).hexdigest()[:15], 16)


def answer(
    inputs: Mapping[str, Any], stage: str, options: Sequence[Sequence[str]] = (), raises: int = 0, pad: int = 0
) -> dict[str, Any]:
    """Return a stage's outputs for these inputs. Raises RefusedError for one in `raises` of all inputs.

    `options`: sets of successors, of which the inputs choose one; none where the stage says no successors. `pad`: how
    many characters more the outputs have.
    """
    parts = sorted((name, str(value)) for name, value in inputs.items() if name.rpartition(".")[2] == VALUE)
    number = number_of(stage, *(text for part in parts for text in part))
    if raises and number % raises == 0:
        raise RefusedError(f"{stage} refuses {number}")
    outputs: dict[str, Any] = {VALUE: f"{stage}{number:x}"}
    if options:
        outputs[TO] = list(options[number // 64 % len(options)])
    if pad:
        outputs["pad"] = pad * "x"
    return outputs


class Hashes:
    """A stage's model. `arguments`: as of `answer`."""

    deterministic = True

    def __init__(self, **arguments: Any) -> None:
        self._arguments = arguments

    def predict(self, batch: list[Any]) -> list[dict[str, Any]]:
        return [answer(dict(query), **self._arguments) for query in batch]


def choose(outputs: Mapping[str, Any]) -> list[str]:
    """Return the successors that outputs are for."""
    return list(outputs[TO])


def split(outputs: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return a share of its own for each successor that outputs are for."""
    return {name: share(outputs, name) for name in outputs[TO]}


def share(outputs: Mapping[str, Any], successor: str) -> dict[str, Any]:
    return {VALUE: f"{outputs[VALUE]}>{successor}"}
