"""An answer with flags: what the model says of it, beside its outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Flagged(dict[str, Any]):
    """One query's outputs: a dict, with flags that go with the query into its outcome, as `flags[STAGE]`.

        return [Flagged({"label": label}, confidence=p) for label, p in answers]

    Which names there are, of which type, and how joins merge them: `spillway.lineage.flags`. Any mapping with an
    attribute `flags` does the same, so a worker with an interpreter of its own needs no Spillway.
    """

    __slots__ = ("flags",)

    def __init__(self, outputs: Mapping[str, Any], /, **flags: Any) -> None:
        super().__init__(outputs)
        self.flags = flags

    def __reduce__(self) -> tuple[Any, ...]:
        return (_flagged, (dict(self), self.flags))


def _flagged(outputs: dict[str, Any], flags: dict[str, Any]) -> Flagged:
    return Flagged(outputs, **flags)


def answered(answer: Mapping[str, Any]) -> Any:
    """What a worker process made for one query, with its flags; None where it made nothing."""
    outputs, flags = answer.get("outputs"), answer.get("flags")
    if flags is None or not isinstance(outputs, Mapping):
        return outputs
    made = Flagged(outputs)
    made.flags = flags  # whatever they are: the stage checks them
    return made
