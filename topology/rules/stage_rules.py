"""What has to fit together within one stage, or between it and the pipeline's own fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.lineage.errors import UsageError
from spillway.topology.problems import Problem
from spillway.topology.rules.batching import check_batching
from spillway.topology.rules.clashes import check_clashes
from spillway.topology.rules.coding import check_coding
from spillway.topology.rules.default import check_default
from spillway.topology.rules.ensemble import check_ensemble
from spillway.topology.rules.state import check_state
from spillway.topology.rules.tables import check_tables
from spillway.topology.rules.variants import check_variants
from spillway.topology.rules.workers import check_workers
from spillway.topology.spec import LimitsSpec

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from spillway.topology.reading.fields import PipelineFields, StageFields


def check_stage(fields: PipelineFields, stage: StageFields) -> Iterator[Problem]:
    """Find what is wrong with this stage, as far as its fields could be read."""
    yield from check_clashes(stage)
    yield from _check_model(stage)
    yield from _check_emulated(stage)
    for check in (check_workers, check_batching, check_coding, check_default, check_ensemble, check_state):
        yield from check(fields, stage)
    yield from check_tables(fields, stage)
    yield from check_variants(fields, stage)


def check_limits(fields: PipelineFields) -> Generator[Problem, None, bool]:
    """Find the limits that no message can have, and a pipeline longer than a message's record of its way.

    Returns whether the number of stages is within bounds, so that looking at every pair of them takes no long time.
    """
    given = fields.head.limits.model_dump(exclude_none=True) if fields.usable("limits") else {}
    usable = {}
    for name, value in given.items():
        try:
            LimitsSpec.model_validate({name: value}).merged()
        except UsageError as error:
            yield Problem(("limits", name), str(error))
        else:
            usable[name] = value
    most = LimitsSpec.model_validate(usable).merged().max_timings
    if len(fields.stages) <= most:
        return True
    text = f"there are {len(fields.stages)} stages, but a query carries timings of {most}; raise limits.max_timings"
    yield Problem(("stages",), text, on_key=True)
    return False


def _check_model(stage: StageFields) -> Iterator[Problem]:
    spec = stage.spec
    if not stage.usable("model", "emulated") or not stage.given.isdisjoint({"ensemble", "variants"}):
        return
    if spec.model is None and spec.emulated is None:
        text = (
            "has no model; give it one, as in 'model: models:Detector', or an emulated profile, as in 'emulated: "
            "{alpha: 20ms, beta: 7ms}'"
        )
        yield Problem(stage.path(), text)
    elif spec.model is not None and spec.emulated is not None:
        text = "the stage has a model and is emulated as well; keep one of the two"
        yield Problem(stage.path("emulated"), text, on_key=True)
    elif spec.emulated is not None and spec.arguments and stage.usable("arguments"):
        text = "an emulated stage has no model to pass arguments to; drop them"
        yield Problem(stage.path("arguments"), text, on_key=True)


def _check_emulated(stage: StageFields) -> Iterator[Problem]:
    profile = stage.spec.emulated
    if profile is None or not stage.usable("emulated"):
        return
    if profile.table is None:
        if not profile.alpha and not profile.beta:
            text = "takes no time; give 'alpha' (of a batch) or 'beta' (of each query in it), or a 'table'"
            yield Problem(stage.path("emulated"), text)
        return
    if profile.alpha is not None or profile.beta is not None:
        field = "alpha" if profile.alpha is not None else "beta"
        text = "is given together with a table; keep either the table or alpha and beta"
        yield Problem(stage.path("emulated", field), text, on_key=True)
    if not stage.usable("batching.max"):
        return
    first, last, most = min(profile.table), max(profile.table), stage.spec.batching.max
    default = "" if "batching.max" in stage.given else " (the default)"
    path = stage.path("emulated", "table")
    if first != 1:
        yield Problem(path, f"begins with a batch of {first}; add the duration of a batch of 1")
    if last < most:
        text = (
            f"ends with a batch of {last}, and the largest is {most}{default}; add that, or write 'batching: {{max: "
            f"{last}}}'"
        )
        yield Problem(path, text)
