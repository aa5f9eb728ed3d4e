"""The record of a run, for an oracle to judge."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, frozen=True)
class Tenure:
    """One assignment of a partition to a process."""

    stage: str
    partition: int
    number: int  # rises with time
    committed: int  # where it started


@dataclass(slots=True, frozen=True)
class Execution:
    """One request in one batch that was started."""

    stage: str
    request_id: str
    partition: int
    sequence: int  # the first of its offsets
    tenure: int


@dataclass(slots=True)
class FaultRun:
    """What came of a run."""

    accepted: list[str] = field(default_factory=list)
    egress: list[tuple[str, str, Any]] = field(default_factory=list)  # (id, kind, value, or reason of a loss)
    executions: list[Execution] = field(default_factory=list)
    tenures: dict[int, Tenure] = field(default_factory=dict)
    faults: int = 0  # that took place
    duplicates: int = 0  # records that the cores recognised as repeated
    stuck: list[str] = field(default_factory=list)  # processes that had something under way at the end
    seconds: float = 0.0
