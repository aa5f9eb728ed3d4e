"""Hops: which stage sent a message, for which of its inputs, and what it can no longer repeat."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Hop:
    """One stage's mark on a message it produced.

    `sequence` is the offset, in partition `partition` of the stage's input, of the message that this one answers (the
    last one to arrive, where several were joined). `committed` is the input offset that the stage had committed on
    that partition when it produced: it cannot repeat any sequence below it.
    """

    stage: str
    epoch: int
    partition: int
    sequence: int
    committed: int
