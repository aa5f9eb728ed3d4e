"""What the processes of a run live in: virtual time, chance, a broker that may be away, and who reads what."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from spillway.agents.core.gate import GATE
from spillway.agents.memory import processes
from spillway.agents.memory.groups import Group
from spillway.agents.memory.world import World
from spillway.agents.proof.shards.world.records import INGRESS, OUTCOMES, Record, again, arrival, is_input

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spillway.agents.memory.broker import Place
    from spillway.agents.proof.shards.schedule.scenario import Scenario
    from spillway.lineage.marks import Mark, Version
    from spillway.lineage.ports import Outgoing
    from spillway.lineage.replication import Batch


# What is remembered of a run for the oracle, beside what the processes write: who did what, and what was released.
#
# It is kept by those who know it from their own work, not from what the protocol says of it: every message carries what
# its sender made it of, whatever marks it has.


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
    nonce: int  # what the model drew


class Loaded(NamedTuple):
    """A state that a member began its reign with."""

    place: Place
    version: Version
    digest: str
    member: str


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
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    events: int = 0


class StateWorld(World[Record]):
    """What processes use. `spillway.agents.proof.shards.play` makes them, breaks them and says when all is over."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(seed)
        self.scenario = scenario
        self.seed = seed
        self.graph = scenario.topology.graph()
        self.partitions = dict.fromkeys((INGRESS, OUTCOMES, *self.graph.order), scenario.partitions)
        self.pace = scenario.stretch
        self.groups = {
            stage: Group(self, stage, self.topic(stage))
            for stage in (GATE, *self.graph.order)
            if stage not in scenario.topology.states
        }
        self.result = StateRun()
        self.incarnations = count(1)
        self._late: list[tuple[str, Place, float, float, int]] = []  # (stage, of which place, from, until, replica)
        self.points: Callable[[Process, str], None] = lambda _process, _point: None

    @staticmethod
    def as_read(place: Place, stored: Record, *, values: bool = True) -> Any:  # noqa: ARG004 - it is an object
        return arrival(place, stored)

    @staticmethod
    def as_stored(outgoing: Outgoing) -> Any:
        return again(outgoing.value)  # type: ignore[arg-type] # a run's records are objects

    def topic(self, stage: str) -> str:
        """Return what a stage, or the gate, reads."""
        if stage == GATE:
            return OUTCOMES
        return stage if self.graph.predecessors[stage] else INGRESS

    def gap(self, place: Place) -> int:
        gap = self.scenario.gap
        return self.random.randint(0, gap) if gap and is_input(place) else 0

    def late(self, stage: str, place: Place, start: float, end: float, replica: int) -> None:
        """Let the processes of a stage read one place later; `replica`: -1 for all of them."""
        self._late.append((stage, place, start, end, replica))

    @staticmethod
    def duration(size: int, /) -> float:
        return 0.006 + 0.002 * size

    def reads_at(self, process: processes.Process, place: Place, when: float) -> float:
        when = super().reads_at(process, place, when)
        for stage, late, start, end, replica in self._late:
            if isinstance(process, Process) and process.stage == stage and late == place and start <= when < end:
                when = end if replica in (-1, process.replica) else when
        return when

    # Shards and what is made in them ---------------------------------------------------------------------------

    def shards_of(self, stages: Iterable[str]) -> list[Place]:
        return [(stage, shard) for stage in stages for shard in range(self.scenario.shards_of(stage))]

    def places_for(self, place: Place) -> list[Place]:
        return [place, *self.shards_of(self.graph.rests_on(place[0]))]

    def made(self, mark: Mark, made: Made) -> None:
        if mark in self.result.made:
            self.result.problems.append(f"{mark} was made twice")
        self.result.made[mark] = made

    # Processes ---------------------------------------------------------------------------------------------------

    def ended(self, process: Process) -> None:
        raise NotImplementedError


class Process(processes.Process):
    """One incarnation of a replica: it lives in virtual time, stands still, and dies."""

    def __init__(self, world: StateWorld, stage: str, replica: int, *, ahead: float = 0.0) -> None:
        super().__init__(world.loop, f"{stage}.{replica}", ahead=ahead)
        self.world = world
        self.stage = stage
        self.replica = replica
        self.incarnation = next(world.incarnations)

    @property
    def idle(self) -> bool:
        raise NotImplementedError
