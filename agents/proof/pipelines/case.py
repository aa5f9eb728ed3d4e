"""A pipeline and what goes wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import yaml

from spillway.agents.core.gate import HELD_LIMIT
from spillway.agents.core.join_rules import PAYLOAD_BYTES
from spillway.topology.load import Pipeline

PATIENT: Final = 600.0  # seconds until the deadline of queries that no policy drops
RESTARTS: Final = (0.02, 0.1, 0.1, 0.6, 1.5)  # seconds until who died is started again


class Kind(Enum):
    """What goes wrong."""

    KILL = "is killed"
    STOP = "stands still"
    REPLACE = "stands still, and another takes its place"
    LEAVE = "leaves in order"
    AWAY = "the broker is away"
    LATE = "reads late"
    SLOW = "sends slowly"
    RETAIN = "loses input by retention"
    WORKER = "loses a worker"
    MEMBERS = "has a member less, or all again"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong. `at` and `seconds`: from the start, and how long."""

    kind: Kind
    at: float
    name: str = ""  # of a stage, or the gate, or of workers
    replica: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Case:
    """One schedule. What is not drawn is calm."""

    spec: dict[str, Any]  # of the pipeline, as a file says it
    replicas: dict[str, int] = field(default_factory=dict)
    durations: dict[str, float] = field(default_factory=dict)  # of a batch of one, in seconds
    deadline: float = PATIENT
    queries: int = 20
    rate: float = 40.0  # queries in a second
    repeats: float = 0.0  # share of queries that are sent again, in the same partition
    poison: float = 0.0  # share of records that are no queries
    json: float = 0.0  # share of queries that ask for their outcome in JSON
    payload_bytes: int = PAYLOAD_BYTES  # of the parts that wait in a process; of the others the payloads are read again
    held_limit: int = HELD_LIMIT  # of decided outcomes in a gate
    in_flight: int = 1_000  # messages of a stage's process that are not acknowledged
    executor: float = 0.01  # seconds that a function off the loop takes, at most
    gaps: int = 0
    kills: float = 0.0  # share of calls of ports at which a process dies
    breaks: float = 0.0  # share of transactions that come to nothing
    slow: float = 0.0  # share of messages with a long delay
    skew: float = 0.0  # seconds that clocks are ahead, at most
    vectors: bool = False  # whether queries are vectors, and not texts
    worker_deaths: float = 0.0  # share of batches at which a worker that is a process dies
    stragglers: float = 0.0  # share of batches that take long
    faults: tuple[Fault, ...] = ()

    @property
    def patient(self) -> bool:
        """Whether no query is ever late."""
        return self.deadline >= PATIENT

    @property
    def loses(self) -> bool:
        """Whether an input loses records that nobody has read."""
        return any(fault.kind is Kind.RETAIN for fault in self.faults)

    def pipeline(self) -> Pipeline:
        return Pipeline.parse(yaml.safe_dump(self.spec, sort_keys=False))
