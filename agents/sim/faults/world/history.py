"""What is remembered of a run for the oracle, beside what the processes write: who did what, and what was released.

It is kept by those who know it from their own work, not from what the protocol says of it: every message carries what
its sender made it of, whatever marks it has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from agents.sim.faults.world.broker import Place
    from lineage.marks import Mark, Version
    from lineage.replication import Batch


class Source(NamedTuple):
    """What a message was made of: records of one partition of its sender's input, all of one request."""

    stage: str
    shard: int  # of a stateful stage; else -1
    epoch: int  # of a stateful stage's reign; else 0
    partition: int
    offsets: tuple[int, ...]


class Made(NamedTuple):
    """A version that a primary made: the digests of the state before and after, and what was done in between."""

    before: str
    after: str
    taken: tuple[tuple[str, tuple[tuple[int, int], ...]], ...]  # (request, its records), in order; empty: drops alone
    nonce: int  # what the model drew


class Loaded(NamedTuple):
    """A state that a member began its reign with."""

    place: Place
    version: Version
    digest: str
    member: str
    epoch: int


class Told(NamedTuple):
    """An outcome that was released."""

    request: str
    kind: str
    told: Any
    offsets: tuple[int, ...]  # of the reports that decided it


@dataclass(slots=True)
class StateRun:
    """What came of a run."""

    accepted: dict[str, float] = field(default_factory=dict)
    made: dict[Mark, Made] = field(default_factory=dict)
    batches: dict[Mark, Batch] = field(default_factory=dict)  # as the cores have recorded them
    loaded: list[Loaded] = field(default_factory=list)
    final: dict[Place, tuple[Version, str]] = field(default_factory=dict)  # each shard's primary at the end
    executed: dict[tuple[str, str], int] = field(default_factory=dict)  # (stateless stage, request): its first offset
    stuck: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # that were noticed on the way
    damaged: set[Place] = field(default_factory=set)  # inputs that lost what somebody needed
    refilled: set[Place] = field(default_factory=set)  # of them, those that have grown past what was lost
    stopped: set[tuple[str, int]] = field(default_factory=set)  # the readers that have said so: stage and partition
    struck: list[str] = field(default_factory=list)  # the faults that took place
    counts: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    events: int = 0

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1
