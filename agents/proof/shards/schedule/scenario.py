"""What is run: a topology, a mode, the queries, and what goes wrong when. All of it follows from a seed (`drawn`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal

from spillway.agents.core.gate import HELD_LIMIT, GateCore
from spillway.agents.core.input_tail import TAIL_RECORDS, InputTail
from spillway.agents.core.join_rules import Rule
from spillway.agents.core.stage import QUEUE_LIMIT, StageCore
from spillway.agents.core.stateful_stage import StatefulCore
from spillway.agents.run.gate import Gate
from spillway.agents.run.log_reader import LogsFeed
from spillway.agents.run.primary import Primary
from spillway.agents.run.shard_input import ShardInput
from spillway.agents.run.shard_member import ShardMember
from spillway.agents.run.stage import Stage
from spillway.checkpoint import version_log
from spillway.checkpoint.inputs import is_lost
from spillway.checkpoint.leases import Lease
from spillway.checkpoint.logs import Logs
from spillway.checkpoint.modes import MODES
from spillway.checkpoint.promotion import Member
from spillway.checkpoint.reign import Reign
from spillway.topology.routing import Graph
from spillway.topology.sections import StateSpec
from spillway.topology.spec import PipelineSpec, StageSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spillway.checkpoint.modes import Mode
    from spillway.lineage.ports import Bounds


# The pipelines that are proved: stateful stages in every position to one another that the rules speak of.
#
# | name | what it is for |
# |---|---|
# | chain | two adjacent stateful stages, the first at the ingress: both primaries may die at once |
# | diamond | stateful branches: a join hears a dead part from one side and a live one from the other |
# | joined | a stateful stage that joins: its versions rest on several parts, and on partners that come late |
# | conditional | a stateful stage chooses the way by its state: a request taken again may go another one |
# | fig6 | HAMS, Fig. 6: stateful, stateless, stateful; the first one's state is late, the second one's backup dies |
#
# The stage `name` has a state where `states` has it.


@dataclass(frozen=True)
class Topology:
    """Edges as `stage -> what it comes after`."""

    name: str
    edges: Mapping[str, tuple[str, ...]]
    states: tuple[str, ...]
    rules: Mapping[str, Rule] = field(default_factory=dict)
    sinks: Literal["any", "all"] | None = None
    choices: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)  # chooser -> its options
    shards: Mapping[str, int] = field(default_factory=dict)  # of stages that have another number than the scenario's
    keyed: tuple[str, ...] = ()  # of `states`, those with a state for each key

    def graph(self) -> Graph:
        stages = tuple(
            StageSpec(
                name=name,
                model="m:M",
                after=after,
                choose="m:choose" if name in self.choices else None,
                state=StateSpec(kind="keyed" if name in self.keyed else "shared") if name in self.states else None,
            )
            for name, after in self.edges.items()
        )
        return Graph(PipelineSpec(name="p", slo=1.0, sinks=self.sinks, stages=stages))


TOPOLOGIES: Final = {
    topology.name: topology
    for topology in (
        Topology("chain", {"a": (), "b": ("a",), "c": ("b",)}, ("a", "b")),
        Topology("diamond", {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}, ("b", "c"), {"d": Rule()}),
        Topology("joined", {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}, ("b", "d"), {"d": Rule()}),
        Topology(
            "conditional",
            {"a": (), "b": ("a",), "c": ("a",)},
            ("a", "b"),
            sinks="all",
            choices={"a": (("b",), ("c",), ("b", "c"), ())},
        ),
        Topology("fig6", {"a": (), "x": ("a",), "b": ("x",)}, ("a", "b")),
    )
}


class Kind(Enum):
    """What goes wrong."""

    CRASH = "crash"  # SIGKILL; of what it had sent to each partition, a beginning arrives
    PAUSE = "pause"  # SIGSTOP for longer than its lease, then it goes on with what it knew, and what it was sending
    AWAY = "away"  # the broker does not answer for some time
    LATE = "late"  # one reader gets one shard's version log later than everybody else
    SLOW = "slow"  # what one member sends takes long
    MOVE = "move"  # the partitions of a stateless stage, or of the gate, move to the other replicas
    ABORT = "abort"  # the gate's next transaction is aborted
    UNKNOWN = "unknown"  # the gate's next transaction is committed, and the gate does not hear of it
    RETAIN = "retain"  # an input's records are deleted beyond where its reader stands
    CUT = "cut"  # an input ends before where its reader stands
    SWITCH = "switch"  # an operator asks for another primary


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong: at a time, or when a process comes to a point of its work for the n-th time."""

    kind: Kind
    stage: str = ""  # or "gate"; empty for the broker
    role: str = ""  # of a stateful stage's members: primary or backup; empty: of no role, or of any
    at: float = 0.0  # seconds from the beginning
    point: str = ""  # a name of POINTS; from `at` on
    nth: int = 1  # of the times that a process of this stage and role comes to it
    shard: int = 0
    seconds: float = 0.5  # until it is back, or as long as it lasts
    of: str = ""  # LATE: whose log
    replica: int = -1  # LATE: of which replica, or member; -1: of all
    moves: bool = False  # PAUSE of one of several replicas: nobody has its place, so its partitions go to the others
    reported: bool = False  # PAUSE: whether a supervisor takes it for dead


POINTS = (
    "compute.before", "compute.after", "update.before", "update.after", "copy.before", "copy.after",
    "chunks.before", "chunks.after", "outputs.before", "outputs.after", "manifest.before", "manifest.after",
    "ack", "lease", "claim.before", "claim.after", "fence.before", "fence.after", "base.before", "base.after",
    "load", "apply", "tidy",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Guards:
    """The parts that keep the promises, so that tests can put others in their place."""

    stage: type[StageCore] = StageCore
    driver: type[Stage] = Stage
    stateful: type[StatefulCore] = StatefulCore
    gate: type[GateCore] = GateCore
    gate_driver: type[Gate] = Gate
    shard_member: type[ShardMember] = ShardMember
    shard_input: type[ShardInput] = ShardInput
    primary: type[Primary] = Primary
    member: type[Member] = Member
    member_logs: type[Logs] = Logs
    stage_logs: type[Logs] = Logs
    gate_logs: type[Logs] = Logs
    reign: type[Reign[Any]] = Reign
    version_key: Callable[[Any], str] = version_log.key
    chunk_epoch: Callable[[int], int] = int  # of an epoch, what stands for it in the keys of its chunks
    keeps: Callable[[Any, Any], Any] = Logs.newest_durable  # what tombstones go by
    tail: Callable[..., InputTail[Any]] = InputTail
    feed: type[LogsFeed] = LogsFeed
    is_lost: Callable[[int | None, Bounds], bool] = is_lost


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run but for its seed."""

    topology: Topology = TOPOLOGIES["chain"]
    mode: Mode = MODES["nspb"]
    deterministic: bool = False
    shards: int = 1
    backups: int = 1
    partitions: int = 2
    queries: int = 24
    rate: float = 60.0  # queries a second
    slo: float = 1_000.0
    policy: str = "naive"  # of the stateful stages
    stateless_policy: str = "naive"  # of the others
    batch: int = 4
    every: int = 6  # requests between two copies, in a mode that logs
    keys: int = 5  # of the keyed states
    poison: float = 0.0  # share of requests that a stage cannot read, or whose model raises, at every attempt
    chance: float = 0.0  # share of attempts at which a stateful stage's model raises
    flaky: float = 0.0  # the same of stateless stages, whose next attempt may thus contradict the one before
    repeats: float = 0.0  # share of queries that the client sends twice
    redeliveries: float = 0.0  # share of polls that hand out again what was read
    reports: bool = True  # whether a supervisor reports dead members
    lag: float = 1.5  # min.compaction.lag, seconds
    compactions: float = 4.0  # a second
    commit_every: float = 0.1
    write_seconds: float = 0.01  # that a chunk takes on its way, about
    faults: tuple[Fault, ...] = ()
    guards: Guards = field(default_factory=Guards)
    most_seconds: float = 90.0
    queue_limit: int = QUEUE_LIMIT
    tail_records: int = TAIL_RECORDS  # of a member
    held_limit: int = HELD_LIMIT  # of a gate
    replicas: int = 1  # of the gate and of each stateless stage
    stretch: float = 1.0  # how many times as long all lasts and waits, but for the network and the models
    gap: int = 0  # offsets between two records of an input, at most
    skew: float = 0.0  # seconds that a process's clock may be ahead or behind

    @property
    def lease(self) -> Lease:
        return Lease(1.0 * self.stretch, 0.25 * self.stretch, 0.2 * self.stretch)

    @property
    def fickle(self) -> bool:
        """Whether another attempt of a stateless stage may end otherwise: chance and time decide."""
        return bool(self.flaky) or self.stateless_policy == "expired"

    def shards_of(self, stage: str) -> int:
        return self.topology.shards.get(stage, self.shards)

    def keys_of(self, stage: str) -> int:
        """Give how many keys a stage's state has; 0 where it is shared."""
        return self.keys if stage in self.topology.keyed else 0

    def chosen(self, stage: str, value: str) -> tuple[str, ...] | None:
        """Give where a stage that chooses sends what its model made; None for one that does not choose."""
        options = self.topology.choices.get(stage)
        return None if options is None else options[int(value[:8], 16) % len(options)]
