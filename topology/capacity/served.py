"""A pipeline that is served by a plan: its counts and batch limits in place of the file's; and a tuner's basis."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from spillway.lineage.errors import SpecError
from spillway.topology.capacity.hardware import can_be_planned
from spillway.topology.capacity.tuner import Basis
from spillway.topology.names import meant
from spillway.topology.spec import EmulatedSpec

if TYPE_CHECKING:
    from spillway.topology.capacity.plan import Plan, PlannedStage
    from spillway.topology.load import Pipeline
    from spillway.topology.spec import StageSpec

_BETWEEN: Final = "+"  # the digests of file and plan
_DIGITS: Final = 16


def file_digest(digest: str) -> str:
    """Of a digest that stands in the table of sizes, the pipeline file's part."""
    return digest.partition(_BETWEEN)[0]


def planned(pipeline: Pipeline, plan: Plan) -> Pipeline:
    """The pipeline with the plan's counts and batch limits; stages that the plan does not have keep the file's.

    Raises SpecError for a plan of another pipeline, or of another version of it.
    """
    if plan.pipeline != pipeline.spec.name:
        raise SpecError(f"the plan is for pipeline {plan.pipeline!r}, not of {pipeline.spec.name!r}")
    if plan.digest != pipeline.digest:
        raise SpecError(
            f"the plan was made for another version of {pipeline.path}: plan this file again with "
            "'spillway plan provision'"
        )
    known = [stage.name for stage in pipeline.spec.stages]
    for name in plan.stages:
        if name in known and not can_be_planned(pipeline.spec.stage(name)):
            raise SpecError(
                f"stage {name!r} is sized by the pipeline file, not by the plan: it has a state, copies, "
                "or several fronts"
            )
        if name not in known:
            raise SpecError(f"the plan has a stage {name!r}, which {pipeline.path} does not have; {meant(name, known)}")
    stages = [
        _planned(stage, plan.stages[stage.name]) if stage.name in plan.stages else stage
        for stage in pipeline.spec.stages
    ]
    durations = {stage.name: stage.emulated.duration for stage in stages if stage.emulated is not None}
    told = hashlib.sha256(plan.model_dump_json(exclude={"steps", "remarks"}).encode()).hexdigest()[:_DIGITS]
    spec = pipeline.spec.model_copy(update={"stages": tuple(stages)})
    durations = {**pipeline.durations, **durations}
    digest, frame = (f"{own}{_BETWEEN}{told}" for own in (pipeline.digest, pipeline.frame))
    return replace(pipeline, spec=spec, digest=digest, frame=frame, durations=durations)


def _planned(stage: StageSpec, of: PlannedStage) -> StageSpec:
    if of.runs == "emulated" and stage.emulated is None:
        raise SpecError(f"stage {stage.name!r} has a model, but its hardware in the plan, {of.hardware}, is emulated")
    emulated = EmulatedSpec(table=of.takes, load=of.load) if of.runs == "emulated" else stage.emulated
    return stage.with_workers(count=of.count).with_batching(size=of.batch).model_copy(update={"emulated": emulated})


def basis_of(plan: Plan) -> Basis:
    """What a tuner needs of a plan."""
    return Basis(plan.trace.rate, dict(sorted(plan.envelope)), plan.stages, plan.limits)
