"""What has to fit together within one stage, or between it and the pipeline's own fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lineage.errors import UsageError
from topology.problems import Problem
from topology.quantities import show_duration
from topology.spec import LimitsSpec, StageSpec

if TYPE_CHECKING:
    from topology.reading.fields import PipelineFields, StageFields


# What a stage may say of its state: `state` itself, and the fields that mean something only with it, or without.
#
# A state has one primary a shard, so `shards` and `backups` say how many processes there are, and nothing else does. A
# field without a meaning is refused, and never passed over: whoever writes `backups: 2` and has none is to know it
# before the crash. At its default it says nothing and may stand, as in a pipeline that was written out in full.

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


def check_stage(fields: PipelineFields, stage: StageFields, problems: list[Problem]) -> None:
    """Add what is wrong with this stage, as far as its fields could be read."""
    _check_model(stage, problems)
    _check_batches(stage, problems)
    _check_emulated(stage, problems)
    check_state(fields, stage, problems)
    spec = stage.spec
    if fields.usable("slo") and stage.usable("batch_delay") and spec.batch_delay >= fields.head.slo:
        text = (
            f"waits {show_duration(spec.batch_delay)} for a batch, and the SLO is {show_duration(fields.head.slo)}: "
            "every query that waits would be late; shorten it"
        )
        problems.append(Problem(stage.path("batch_delay"), text))
    partitions = fields.head.partitions
    if fields.usable("partitions") and stage.usable("replicas") and spec.replicas > partitions:
        text = (
            f"there are more replicas ({spec.replicas}) than partitions ({partitions}), so some would have nothing to "
            "do; raise 'partitions', or use more 'instances' in fewer replicas"
        )
        problems.append(Problem(stage.path("replicas"), text))


def check_limits(fields: PipelineFields, problems: list[Problem]) -> bool:
    """Add the limits that no message can have, and a pipeline longer than a message's record of its way.

    Returns whether the number of stages is within bounds, so that looking at every pair of them takes no long time.
    """
    given = fields.head.limits.model_dump(exclude_none=True) if fields.usable("limits") else {}
    usable = {}
    for name, value in given.items():
        try:
            LimitsSpec.model_validate({name: value}).merged()
        except UsageError as error:
            problems.append(Problem(("limits", name), str(error)))
        else:
            usable[name] = value
    most = LimitsSpec.model_validate(usable).merged().max_timings
    if len(fields.stages) <= most:
        return True
    text = f"there are {len(fields.stages)} stages, and a query can tell the times of {most}; raise limits.max_timings"
    problems.append(Problem(("stages",), text, on_key=True))
    return False


def _check_model(stage: StageFields, problems: list[Problem]) -> None:
    spec = stage.spec
    if not stage.usable("model", "emulated"):
        return
    if spec.model is None and spec.emulated is None:
        text = (
            "has no model; give it one, as in 'model: models:Detector', or an emulated profile, as in 'emulated: "
            "{alpha: 20ms, beta: 7ms}'"
        )
        problems.append(Problem(stage.path(), text))
    elif spec.model is not None and spec.emulated is not None:
        text = "the stage has a model and is emulated as well; keep one of the two"
        problems.append(Problem(stage.path("emulated"), text, on_key=True))
    elif spec.emulated is not None and spec.arguments and stage.usable("arguments"):
        text = "arguments are a model's, and this stage is emulated; drop them"
        problems.append(Problem(stage.path("arguments"), text, on_key=True))


def _check_batches(stage: StageFields, problems: list[Problem]) -> None:
    spec = stage.spec
    if not stage.usable("batch", "max_batch"):
        return
    if spec.batch is not None and spec.batch > spec.max_batch:
        default = "" if "max_batch" in stage.given else " (the default)"
        text = f"the planned batch of {spec.batch} is over max_batch, {spec.max_batch}{default}; lower it or raise that"
        problems.append(Problem(stage.path("batch"), text))
    if stage.usable("queue") and spec.queue < spec.batch_size:
        default = "" if "queue" in stage.given else " (the default)"
        field = "queue" if "queue" in stage.given else "batch" if spec.batch is not None else "max_batch"
        text = (
            f"the queue holds {spec.queue}{default}, so a batch of {spec.batch_size} can never be full; "
            f"raise 'queue' to {spec.batch_size} or more"
        )
        problems.append(Problem(stage.path(field), text))


def _check_emulated(stage: StageFields, problems: list[Problem]) -> None:
    profile = stage.spec.emulated
    if profile is None or not stage.usable("emulated"):
        return
    if profile.table is None:
        if not profile.alpha and not profile.beta:
            text = "takes no time; give 'alpha' (of a batch) or 'beta' (of each query in it), or a 'table'"
            problems.append(Problem(stage.path("emulated"), text))
        return
    if profile.alpha is not None or profile.beta is not None:
        field = "alpha" if profile.alpha is not None else "beta"
        text = "is given beside a table; keep either the table or alpha and beta"
        problems.append(Problem(stage.path("emulated", field), text, on_key=True))
    if not stage.usable("max_batch"):
        return
    first, last, most = min(profile.table), max(profile.table), stage.spec.max_batch
    default = "" if "max_batch" in stage.given else " (the default)"
    path = stage.path("emulated", "table")
    if first != 1:
        problems.append(Problem(path, f"begins with a batch of {first}; add the duration of a batch of 1"))
    if last < most:
        text = f"ends with a batch of {last}, and max_batch is {most}{default}; add that, or set max_batch: {last}"
        problems.append(Problem(path, text))
