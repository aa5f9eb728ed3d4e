"""Names of consumer groups, of their static members and of processes; the supervisor and the processes agree on them.

The processes of a stateful stage are numbered as replicas are: replica R is member R % members of shard R // members,
where `members` is one more than the shard's backups. Each is in a consumer group of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spillway.lineage.metric_names import GATE

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.producers.connection import ClientSettings
    from spillway.topology.spec import PipelineSpec, StageSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """How a replica takes part in its consumer group. Durations in seconds."""

    group: str
    instance: str  # static: a restarted replica of this name gets its partitions back
    settings: ClientSettings
    committed_alone: bool = False  # read no records of open transactions
    session: float = 10.0
    heartbeat: float = 0.3
    rebalance: float = 15.0
    fetch_wait: float = 0.25  # the longest that the broker holds a fetch without records
    fetch_bytes: int = 256 * 1024  # per partition and fetch; bounds what a waiting replica holds
    chunk_records: int = 500
    reads: Callable[[int], bool] | None = None  # which partitions the group takes at all; None: every one


def group_id(pipeline: str, stage: str) -> str:
    """The consumer group of a stage's replicas, or of the gate (stage "gate")."""
    return f"{pipeline}.{stage}"


def instance_id(pipeline: str, stage: str, replica: int) -> str:
    """The static member that a replica is: its successor of the same name gets its partitions back at once."""
    return f"{group_id(pipeline, stage)}.{replica}"


def standby_label(stage: str, number: int) -> str:
    return f"{stage}.standby{number}"


def member_of(spec: StageSpec, replica: int) -> tuple[int, int]:
    """The shard, and the member of it, that a process of a stateful stage is."""
    return divmod(replica, spec.required_state.members)


def member_label(spec: StageSpec, replica: int) -> str:
    """The name of a process of a stateful stage: `<stage>.<shard>.<member>`.

    After the pipeline's name it is its consumer group (`group_id`), and begins the name of its process.
    """
    shard, member = member_of(spec, replica)
    return f"{spec.name}.{shard}.{member}"


def group_ids(spec: PipelineSpec) -> list[str]:
    """The consumer groups of a pipeline: of its stages, of their members where they have some, of the gate."""
    labels = [GATE]
    for stage in spec.stages:
        members = [member_label(stage, replica) for replica in range(stage.processes)] if stage.stateful else []
        labels += members or [stage.name]
    return [group_id(spec.name, label) for label in labels]


def replica_of(instance: str | None) -> int | None:
    """The replica behind a static member's name, or None where that is none of ours."""
    last = (instance or "").rpartition(".")[2]
    return int(last) if last.isdigit() else None
