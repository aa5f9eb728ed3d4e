"""What has to fit together in a stage's `workers:` section, or between it and the pipeline's own fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.topology import names
from spillway.topology.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway.topology.reading.fields import PipelineFields, StageFields
    from spillway.topology.sections import WorkersSpec


def check_workers(fields: PipelineFields, stage: StageFields) -> Iterator[Problem]:
    """Find what does not fit together in what this stage says of its workers; `topology.rules.state` has the rest."""
    workers = stage.spec.workers
    partitions = fields.head.partitions
    if fields.usable("partitions") and stage.usable("workers.fronts") and workers.fronts > partitions:
        text = (
            f"there are more fronts ({workers.fronts}) than partitions ({partitions}), so some would have nothing to "
            f"do; raise 'partitions', or write 'workers: {{count: {workers.total}, fronts: {partitions}}}'"
        )
        yield Problem(stage.path("workers.fronts"), text)
    if stage.usable("workers.fronts", "workers.count") and workers.total < workers.fronts:
        text = (
            f"{workers.total} workers are too few for {workers.fronts} fronts, as each needs one; raise 'count' or "
            "use fewer fronts"
        )
        yield Problem(stage.path("workers.count"), text)
    if stage.usable("workers.where"):
        yield from _check_where(stage)


def _check_where(stage: StageFields) -> Iterator[Problem]:
    workers = stage.spec.workers
    where = workers.where
    if where != "thread" and stage.read("emulated"):
        text = f"an emulated model is a timer and needs no process of its own; drop 'where: {where}'"
        yield Problem(stage.path("workers.where"), text)
    if workers.python is not None and stage.spec.model is not None and names.model_parts(stage.spec.model)[0]:
        text = "an interpreter without Spillway can load only classes, as in 'model: models:Detect'; drop 'python'"
        yield Problem(stage.path("workers.python"), text)
    found = _of_remote(stage) if where == "remote" else _of_local(workers)
    yield from (Problem(stage.path(name), text) for name, text in found if stage.usable(name))


def _of_remote(stage: StageFields) -> Iterator[tuple[str, str]]:
    workers = stage.spec.workers
    if workers.listen is None and stage.usable("workers.listen"):
        yield "workers.where", "remote workers connect to their front; add 'listen: \"0.0.0.0:7443\"'"
    if workers.tls is None and stage.usable("workers.tls"):
        yield "workers.where", "remote workers connect by TLS; add 'tls: FOLDER' (docs/workers.md says how to make it)"
    if workers.fronts > 1:
        yield "workers.fronts", f"{workers.fronts} fronts cannot listen at one address; use one front with more workers"
    if workers.standby:
        yield "workers.standby", "a standby cannot listen where the front does; drop 'standby'"
    if workers.python is not None:
        yield "workers.python", "a remote worker runs in the interpreter that it is started with; drop 'python'"


def _of_local(workers: WorkersSpec) -> Iterator[tuple[str, str]]:
    for name in ("listen", "tls"):
        if getattr(workers, name) is not None:
            text = f"only remote workers connect to their front; add 'where: remote', or drop {name!r}"
            yield f"workers.{name}", text
    for name in ("threads", "python"):
        if getattr(workers, name) is not None and workers.where == "thread":
            text = f"a worker that is a thread does not have its own; add 'where: process', or drop {name!r}"
            yield f"workers.{name}", text
    if workers.python is not None and workers.device != "cpu":
        yield "workers.device", "with 'python' the model chooses its device; drop 'device' and set it in 'arguments'"
