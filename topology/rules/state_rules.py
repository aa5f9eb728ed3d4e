"""What a stage may say of its state: `state` itself, and the fields that mean something only with it, or without.

A state has one primary a shard, so `shards` and `backups` say how many processes there are, and nothing else does. A
field without a meaning is refused, and never passed over: whoever writes `backups: 2` and has none is to know it before
the crash. At its default it says nothing and may stand, as in a pipeline that was written out in full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topology.problems import Problem
from topology.spec import StageSpec

if TYPE_CHECKING:
    from topology.reading.fields import PipelineFields, StageFields

_WITH_STATE: Final = ("shards", "backups", "replication", "checkpoint_every", "lease")
_OF_LOGS: Final = ("backups", "lease")
_PROCESSES: Final = "shards and backups say how many processes a stage with a state has"


def check_state(fields: PipelineFields, stage: StageFields, problems: list[Problem]) -> None:
    """Add what does not fit together in what this stage says of its state."""
    if not stage.usable("state"):
        return
    if not stage.spec.stateful:
        for field in _WITH_STATE:
            if _says(stage, field):
                text = f"is of a stage with a state; add 'state: shared' or 'state: keyed', or drop '{field}'"
                problems.append(Problem(stage.path(field), text, on_key=True))
        return
    _check_processes(stage, problems)
    _check_replication(stage, problems)
    partitions = fields.head.partitions
    if fields.usable("partitions") and stage.usable("shards") and stage.spec.shards > partitions:
        text = (
            f"there are more shards ({stage.spec.shards}) than partitions ({partitions}), so some would have nothing "
            "to do; raise 'partitions', or have fewer shards"
        )
        problems.append(Problem(stage.path("shards"), text))
    if stage.spec.emulated is not None and stage.usable("emulated"):
        text = (
            "the stage has a state and is emulated, and an emulated model has nothing to keep; give it a 'model' with "
            "initialize, compute and update, or drop 'state'"
        )
        problems.append(Problem(stage.path("emulated"), text, on_key=True))


def _check_processes(stage: StageFields, problems: list[Problem]) -> None:
    spec = stage.spec
    if stage.usable("replicas") and spec.replicas > 1:
        text = (
            f"{spec.replicas} replicas would each have a state of their own, which nobody keeps alike; {_PROCESSES}: "
            f"drop 'replicas', or say 'shards: {spec.replicas}'"
        )
        problems.append(Problem(stage.path("replicas"), text))
    if stage.usable("instances") and spec.instances > 1:
        text = (
            f"{spec.instances} instances would each have a state of their own, and batches of one state follow one "
            f"another; {_PROCESSES}: drop 'instances', or say 'shards: {spec.instances}'"
        )
        problems.append(Problem(stage.path("instances"), text))
    if stage.usable("executor") and spec.executor == "process":
        text = "a state is copied where its model runs, in the stage's own process; drop 'executor: process'"
        problems.append(Problem(stage.path("executor"), text))
    if stage.usable("standby") and spec.standby:
        text = f"standbys are of stages without a state; {_PROCESSES}: drop 'standby', or say 'backups: {spec.standby}'"
        problems.append(Problem(stage.path("standby"), text))


def _check_replication(stage: StageFields, problems: list[Problem]) -> None:
    if not stage.usable("replication"):
        return
    replication = stage.spec.replication
    if replication != "lineage-stash" and _says(stage, "checkpoint_every"):
        text = (
            f"is of 'replication: lineage-stash' alone; {replication} has a version for every batch: drop it, or say "
            "'replication: lineage-stash'"
        )
        problems.append(Problem(stage.path("checkpoint_every"), text, on_key=True))
    for field in _OF_LOGS:
        if replication == "none" and _says(stage, field) and getattr(stage.spec, field):
            text = f"means nothing with 'replication: none', where nobody takes the state over; drop '{field}'"
            problems.append(Problem(stage.path(field), text, on_key=True))


def _says(stage: StageFields, field: str) -> bool:
    return stage.usable(field) and getattr(stage.spec, field) != StageSpec.model_fields[field].default
