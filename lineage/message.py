"""What a message's value holds: a query on its way, its outcome, a dead letter, a replica's word for the others.

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
    arrived: int = 0  # unix microseconds, by the stage's clock: when it was ready there; 0 where that is unknown


@dataclass(slots=True)
class Query:
    """Named inputs on their way to a stage, with the caller's parameters, and the timings and flags so far."""

    inputs: dict[str, Value]
    parameters: dict[str, Value] = field(default_factory=dict)
    timings: list[StageTiming] = field(default_factory=list)
    flags: dict[str, Value] = field(default_factory=dict)  # by stage (`spillway.lineage.flags`)


@dataclass(slots=True)
class Outcome:
    """How a query ended. On a stage's input topic an outcome that is no prediction is a tombstone for a join."""

    kind: OutcomeKind
    outputs: dict[str, Value] = field(default_factory=dict)
    reason: str = ""  # a code of spillway.lineage.reasons; empty for a prediction
    text: str = ""
    stage: str = ""  # the stage that ended it
    timings: list[StageTiming] = field(default_factory=list)
    flags: dict[str, Value] = field(default_factory=dict)  # by stage (`spillway.lineage.flags`)
    # What a client adds when it receives the outcome; none of it travels.
    latency: float | None = field(default=None, compare=False)  # seconds since the query was sent
    late: bool = field(default=False, compare=False)  # it came after the query's deadline
    request_id: str = field(default="", compare=False)  # the query's, as `spillway inspect` takes it


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


@dataclass(frozen=True, slots=True)
class PlanWord:
    """What one replica of a stage says of itself once a period. Durations in seconds, rates a second.

    The fields from `queueing` on are those of `spillway.agents.core.policy.StageState`. Nothing says that they are
    plausible.
    """

    stage: str
    replica: int
    began_us: int  # unix microseconds: when its process began; a restart speaks for its predecessor
    at_us: int  # unix microseconds, by its own clock
    span: float = 0.0  # of the period that it speaks of
    queueing: float = 0.0
    entered: float = 0.0
    waits: tuple[float, ...] = ()  # quantiles of its batch waits, ascending, at even steps
    waits_seen: int = 0
    batch: int = 0
    recent_batch: float = 0.0
    duration: float = 0.0
    recent_duration: float = 0.0
    arrival_rate: float = 0.0
    completion_rate: float = 0.0
    drop_rate: float = 0.0
    backlog: int = 0
    hbf: bool = False
    hops: tuple[float, ...] = ()  # quantiles of its messages' hops, ascending, at even steps
    utilisation: float = 0.0
    slower: float = 0.0
