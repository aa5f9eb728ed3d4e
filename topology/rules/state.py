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
    from collections.abc import Iterator

    from spillway.topology.reading.fields import PipelineFields, StageFields

_OF_LOGS: Final = ("backups", "lease")
_PROCESSES: Final = "shards and backups set the number of processes of a stage with a state"


def check_state(fields: PipelineFields, stage: StageFields) -> Iterator[Problem]:
    """Find what does not fit together in what this stage says of its state."""
    state = stage.read("state")
    if state is None:
        return
    yield from _check_workers(stage)
    yield from _check_replication(stage, state)
    partitions = fields.head.partitions
    if fields.usable("partitions") and stage.usable("state.shards") and state.shards > partitions:
        text = (
            f"there are more shards ({state.shards}) than partitions ({partitions}), so some would have nothing to "
            "do; raise 'partitions', or use fewer shards"
        )
        yield Problem(stage.path("state.shards"), text)


def _check_workers(stage: StageFields) -> Iterator[Problem]:
    workers = stage.spec.workers
    for field, number in (("fronts", workers.fronts), ("count", workers.total)):
        path = f"workers.{field}"
        if path in stage.given and stage.usable(path) and number > 1:
            text = (
                f"{number} processes would each keep their own state, and the states would differ; {_PROCESSES}: "
                f"drop '{field}', or say 'state: {{shards: {number}}}'"
            )
            yield Problem(stage.path(path), text)
    if stage.usable("workers.where") and workers.where != "thread":
        text = f"a state is copied where its model runs, in the stage's own process; drop 'where: {workers.where}'"
        yield Problem(stage.path("workers.where"), text)
    if stage.usable("workers.standby") and workers.standby:
        text = (
            f"only stages without a state have standbys; {_PROCESSES}: drop 'standby', or say 'state: {{backups: "
            f"{workers.standby}}}'"
        )
        yield Problem(stage.path("workers.standby"), text)


def _check_replication(stage: StageFields, state: StateSpec) -> Iterator[Problem]:
    if not stage.usable("state.replication"):
        return
    replication = state.replication
    if replication != "lineage-stash" and _says(stage, state, "checkpoint_every"):
        text = (
            f"applies only to 'replication: lineage-stash'; {replication} makes a version for every batch: drop it, "
            "or say 'replication: lineage-stash'"
        )
        yield Problem(stage.path("state.checkpoint_every"), text, on_key=True)
    for field in _OF_LOGS:
        if replication == "none" and _says(stage, state, field) and getattr(state, field):
            text = f"has no effect with 'replication: none', where no member takes the state over; drop '{field}'"
            yield Problem(stage.path(f"state.{field}"), text, on_key=True)


def _says(stage: StageFields, state: StateSpec, field: str) -> bool:
    return stage.usable(f"state.{field}") and getattr(state, field) != StateSpec.model_fields[field].default
