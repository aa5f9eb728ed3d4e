"""What has to fit together in a stage's `ensemble:` section, or between it and the stage's other fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.topology.problems import Problem
from spillway.topology.quantities import show_duration
from spillway.topology.sections import MOST_MEMBERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway.topology.reading.fields import PipelineFields, StageFields
    from spillway.topology.sections import EnsembleSpec, WorkersSpec


def check_ensemble(fields: PipelineFields, stage: StageFields) -> Iterator[Problem]:
    """Find what does not fit together; the selection and the loss, agents check, who know which there are."""
    if ensemble := stage.read("ensemble"):
        for path, text in _wrong(fields, stage, ensemble):
            yield Problem(stage.path("ensemble", *path), text)


def _wrong(fields: PipelineFields, stage: StageFields, ensemble: EnsembleSpec) -> Iterator[tuple[tuple[str, ...], str]]:
    spec = stage.spec
    if not ensemble.members:
        yield ("members",), "is empty; name at least one model, as in 'members: {linear: {model: models:Linear}}'"
    if len(ensemble.members) > MOST_MEMBERS:
        yield ("members",), f"there are {len(ensemble.members)}, and an outcome can report {MOST_MEMBERS} at most"
    if ensemble.threshold is not None and spec.default is None and stage.usable("default"):
        yield ("threshold",), "needs a default to fall back to; give the stage one: 'default: {...}'"
    if fields.usable("slo") and ensemble.wait is not None and ensemble.wait >= fields.head.slo:
        slo = show_duration(fields.head.slo)
        yield ("wait",), f"is not shorter than the SLO, {slo}, so every partial answer would be late; shorten it"
    if not isinstance(ensemble.selection.get("name"), str):
        yield ("selection",), "needs a name, as in 'selection: exp4' or 'selection: {name: exp3, eta: .2}'"
    learner = spec.learner
    taken = [each.spec for each in (*fields.stages, *fields.learners) if learner is not None]
    if learner is not None and any(each.name == learner.name and each != learner for each in taken):
        yield (), f"its learner is called {learner.name!r}, and so is another learner or stage; rename that one"
    for name, member in ensemble.members.items():
        for field, text in of_workers(spec.fronts, member.workers):
            yield ("members", name, "workers", field), text


def of_workers(fronts: int, workers: WorkersSpec) -> Iterator[tuple[str, str]]:
    """What cannot be said of the workers of one of a stage's lanes: fields and texts."""
    if workers.where != "process":
        yield "where", f"these run in their own processes; drop 'where: {workers.where}'"
    for name in ("fronts", "standby"):
        if name in workers.model_fields_set:
            yield name, f"belongs to the stage; write it there: 'workers: {{{name}: {getattr(workers, name)}}}'"
    if workers.count and workers.count < fronts:
        yield "count", f"each of the stage's {fronts} fronts needs one; write 'count: {fronts}' or more"
