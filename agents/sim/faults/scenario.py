"""What is run: the pipeline, the queries, and what goes wrong when."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal

from agents.core.gate import GateCore
from agents.core.stage import StageCore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agents.core.joins import Rule
    from topology.routing import Graph


class FaultKind(Enum):
    """What goes wrong with a process."""

    CRASH = "crash"  # SIGKILL: its memory is gone; what it had sent may or may not arrive
    ZOMBIE = "zombie"  # it stands still, is replaced, and goes on for a moment with what it knew
    REBALANCE = "rebalance"  # one of its partitions moves to another replica
    ABORT = "abort"  # the gate's next transaction is aborted


@dataclass(slots=True, frozen=True)
class Fault:
    """One thing that goes wrong: at a time, or right after the first commit at which `when` is true."""

    kind: FaultKind
    stage: str  # or "gate"
    replica: int = 0
    at: float | None = None
    when: Callable[[Any], bool] | None = None  # is given the process's core
    seconds: float = 0.5  # until a crashed process is back, or a standing one is replaced
    pause: float = 1.0  # how long a zombie stands still after it was replaced


@dataclass(slots=True)
class Scenario:
    """One run but for its seed."""

    graph: Graph
    rules: Mapping[str, Rule] = field(default_factory=dict)  # of the stages that join
    sinks: Literal["any", "all"] | None = None
    queries: int = 60
    rate: float = 200.0  # queries a second
    slo: float = 1_000.0
    partitions: int = 2
    replicas: int = 2
    batch: int = 4
    policy: str = "naive"
    repeats: float = 0.0  # share of queries that the client sends twice
    faults: tuple[Fault, ...] = ()
    choose: Mapping[str, Callable[[str], tuple[str, ...]]] = field(default_factory=dict)
    # How a stage takes a query: None as usual, "record" its message cannot be read, "model" its execution fails.
    poison: Callable[[str, str], str | None] = lambda _stage, _request_id: None
    commit_every: float = 0.1
    stage_type: type[StageCore] = StageCore
    gate_type: type[GateCore] = GateCore
    most_seconds: float = 300.0
