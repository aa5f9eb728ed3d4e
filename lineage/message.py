"""What a message's value holds: a query on its way, its outcome, a dead letter.

Plain slotted classes, made by the codec on the hot path; nothing here validates (the codec does, once, at the edge).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

# None, bool, int (64 bits), float, str, bytes, numpy array, or a list / str-keyed dict of values.
Value = Any
OutcomeKind = Literal["prediction", "dropped", "failed"]
PREDICTION: OutcomeKind = "prediction"
DROPPED: OutcomeKind = "dropped"
FAILED: OutcomeKind = "failed"


@dataclass(slots=True)
class StageTiming:
    """What one stage did for one query. Durations in seconds: Q, W and D of PARD's eq. 2."""

    stage: str
    queued: float  # from arrival at the stage to entering a batch
    waited: float  # from entering the batch to its start
    executed: float  # the batch's execution
    batch: int  # how many queries shared that execution
    model: str = ""
    version: str = ""


@dataclass(slots=True)
class Query:
    """Named inputs on their way to a stage, with the caller's parameters and the timings so far."""

    inputs: dict[str, Value]
    parameters: dict[str, Value] = field(default_factory=dict)
    timings: list[StageTiming] = field(default_factory=list)


@dataclass(slots=True)
class Outcome:
    """How a query ended. On a stage's input topic an outcome that is no prediction is a tombstone for a join."""

    kind: OutcomeKind
    outputs: dict[str, Value] = field(default_factory=dict)
    reason: str = ""  # a code of lineage.reasons; empty for a prediction
    text: str = ""
    stage: str = ""  # the stage that ended it
    timings: list[StageTiming] = field(default_factory=list)
    flags: dict[str, Value] = field(default_factory=dict)  # e.g. default, confidence


@dataclass(slots=True)
class DeadLetter:
    """A message that a stage or the gate could not take, as it was, and why."""

    topic: str
    partition: int
    offset: int
    stage: str
    reason: str
    text: str
    at_us: int  # unix microseconds
    key: bytes | None = None
    value: bytes | None = None
    headers: list[tuple[bytes, bytes | None]] = field(default_factory=list)
