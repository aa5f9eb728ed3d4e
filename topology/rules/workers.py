"""What has to fit together in a stage's `workers:` section, or between it and the pipeline's own fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topology.problems import Problem

if TYPE_CHECKING:
    from topology.reading.fields import PipelineFields, StageFields


def check_workers(fields: PipelineFields, stage: StageFields, problems: list[Problem]) -> None:
    """Add what does not fit together in what this stage says of its workers; `topology.rules.state` has the rest."""
    workers = stage.spec.workers
    partitions = fields.head.partitions
    if fields.usable("partitions") and stage.usable("workers.fronts") and workers.fronts > partitions:
        text = (
            f"there are more fronts ({workers.fronts}) than partitions ({partitions}), so some would have nothing to "
            f"do; raise 'partitions', or write 'workers: {{count: {workers.total}, fronts: {partitions}}}'"
        )
        problems.append(Problem(stage.path("workers.fronts"), text))
    if stage.usable("workers.fronts", "workers.count") and workers.total < workers.fronts:
        text = (
            f"{workers.total} workers cannot be dealt out to {workers.fronts} fronts, as each needs one; raise 'count' "
            "or have fewer fronts"
        )
        problems.append(Problem(stage.path("workers.count"), text))
    if stage.usable("workers.where", "emulated") and workers.where == "process" and stage.spec.emulated is not None:
        text = "an emulated model is a timer and needs no process of its own; drop 'where: process'"
        problems.append(Problem(stage.path("workers.where"), text))
