"""Names of consumer groups and of their static members; the supervisor and the stages must agree on them."""

from __future__ import annotations


def group_id(pipeline: str, stage: str) -> str:
    """The consumer group of a stage's replicas, or of the gate (stage "gate")."""
    return f"{pipeline}.{stage}"


def instance_id(pipeline: str, stage: str, replica: int) -> str:
    """The static member that a replica is: its successor of the same name gets its partitions back at once."""
    return f"{group_id(pipeline, stage)}.{replica}"


def replica_of(instance: str | None) -> int | None:
    """The replica behind a static member's name, or None where that is none of ours."""
    last = (instance or "").rpartition(".")[2]
    return int(last) if last.isdigit() else None
