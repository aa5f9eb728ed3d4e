"""What has to fit together in a stage's `state:` section, or between it and the stage's other fields.

A state has one primary a shard, so `shards` and `backups` say how many processes there are, and nothing else does. A
field without a meaning is refused, and never passed over: whoever writes `backups: 2` and has none is to know it before
the crash. At its default it says nothing and may stand, as in a pipeline that was written out in full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spillway.topology.problems import Problem
from spillway.topology.sections import StateSpec

if TYPE_CHECKING:
    from spillway.topology.reading.fields import PipelineFields, StageFields

_OF_LOGS: Final = ("backups", "lease")
_PROCESSES: Final = "shards and backups set the number of processes of a stage with a state"


def check_state(fields: PipelineFields, stage: StageFields, problems: list[Problem]) -> None:
    """Add what does not fit together in what this stage says of its state."""
    state = stage.spec.state
    if state is None or not stage.usable("state"):
        return
    _check_workers(stage, problems)
    _check_replication(stage, state, problems)
    partitions = fields.head.partitions
    if fields.usable("partitions") and stage.usable("state.shards") and state.shards > partitions:
        text = (
            f"there are more shards ({state.shards}) than partitions ({partitions}), so some would have nothing to "
            "do; raise 'partitions', or use fewer shards"
        )
        problems.append(Problem(stage.path("state.shards"), text))
    if stage.spec.emulated is not None and stage.usable("emulated"):
        text = (
            "the stage has a state and is emulated, but an emulated model has no state; give it a 'model' with "
            "initialize, compute and update, or drop 'state'"
        )
        problems.append(Problem(stage.path("emulated"), text, on_key=True))


def _check_workers(stage: StageFields, problems: list[Problem]) -> None:
    workers = stage.spec.workers
    for field, number in (("fronts", workers.fronts), ("count", workers.total)):
        path = f"workers.{field}"
        if path in stage.given and stage.usable(path) and number > 1:
            text = (
                f"{number} processes would each keep their own state, and the states would differ; {_PROCESSES}: "
                "drop "
                f"'{field}', or say 'state: {{shards: {number}}}'"
            )
            problems.append(Problem(stage.path(path), text))
    if stage.usable("workers.where") and workers.where != "thread":
        text = f"a state is copied where its model runs, in the stage's own process; drop 'where: {workers.where}'"
        problems.append(Problem(stage.path("workers.where"), text))
    if stage.usable("workers.standby") and workers.standby:
        text = (
            f"only stages without a state have standbys; {_PROCESSES}: drop 'standby', or say 'state: {{backups: "
            f"{workers.standby}}}'"
        )
        problems.append(Problem(stage.path("workers.standby"), text))


def _check_replication(stage: StageFields, state: StateSpec, problems: list[Problem]) -> None:
    if not stage.usable("state.replication"):
        return
    replication = state.replication
    if replication != "lineage-stash" and _says(stage, state, "checkpoint_every"):
        text = (
            f"applies only to 'replication: lineage-stash'; {replication} makes a version for every batch: drop it, "
            "or say "
            "'replication: lineage-stash'"
        )
        problems.append(Problem(stage.path("state.checkpoint_every"), text, on_key=True))
    for field in _OF_LOGS:
        if replication == "none" and _says(stage, state, field) and getattr(state, field):
            text = f"has no effect with 'replication: none', where no member takes the state over; drop '{field}'"
            problems.append(Problem(stage.path(f"state.{field}"), text, on_key=True))


def _says(stage: StageFields, state: StateSpec, field: str) -> bool:
    return stage.usable(f"state.{field}") and getattr(state, field) != StateSpec.model_fields[field].default
