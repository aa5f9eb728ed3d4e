"""What a stage's `default:` outputs must be: such as the stages behind it take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway.lineage.errors import UsageError, WireError
from spillway.lineage.limits import DEFAULT_LIMITS
from spillway.lineage.message import Query
from spillway.lineage.values.codec import encode_query
from spillway.lineage.values.tensors import is_tensor
from spillway.topology.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spillway.lineage.limits import Limits
    from spillway.topology.reading.fields import PipelineFields, StageFields
    from spillway.topology.spec import InputSpec


def check_default(fields: PipelineFields, stage: StageFields) -> Iterator[Problem]:
    """Find what is wrong with the outputs; with those of a coded stage, agents check, who can read its cards."""
    if stage.read("default") is not None:
        for text in _wrong(fields, stage):
            yield Problem(stage.path("default"), text, on_key=True)


def _wrong(fields: PipelineFields, stage: StageFields) -> Iterator[str]:
    if stage.read("state"):
        yield "a model with a state must process every query, so the stage always waits for it; drop 'default'"
        return
    try:
        outputs = stage.spec.default_outputs
        encode_query(Query(outputs), _limits(fields))
    except WireError as error:
        yield f"cannot be sent: {error}"
        return
    if not outputs:
        yield "is empty; give the outputs for queries that are not answered in time, as in 'default: {label: 0}'"
    elif stage.spec.split is None:
        for other in fields.stages:
            if stage.name in other.spec.after and other.spec.inputs and other.usable("inputs", "after", "join"):
                yield from _misfits(other, _taken(stage, other), outputs)


def _limits(fields: PipelineFields) -> Limits:
    """The pipeline's limits; the default ones where its own are wrong, which another check says."""
    try:
        return fields.head.limits.merged() if fields.usable("limits") else DEFAULT_LIMITS
    except UsageError:
        return DEFAULT_LIMITS


def _taken(stage: StageFields, other: StageFields) -> dict[str, InputSpec]:
    """What a stage behind takes of this one's outputs, by their names here, where that is known."""
    declared = other.spec.inputs or {}
    if len(other.spec.after) == 1:
        return declared
    if other.spec.join is not None and other.spec.join.function is not None:
        return {}
    own = f"{stage.name}."
    return {name.removeprefix(own): said for name, said in declared.items() if name.startswith(own)}


def _misfits(other: StageFields, taken: Mapping[str, InputSpec], outputs: Mapping[str, Any]) -> Iterator[str]:
    for name, said in taken.items():
        if name not in outputs:
            yield f"has no {name!r}, which stage {other.name!r} needs; add it"
            continue
        value = outputs[name]
        dtype, shape = (str(value.dtype), tuple(value.shape)) if is_tensor(value) else (type(value).__name__, ())
        if not said.takes(dtype, shape):
            found = f"{dtype} {list(shape)}" if is_tensor(value) else dtype
            yield (
                f"{name!r} is {found}, and stage {other.name!r} takes {said.text}; write a tensor as "
                "{dtype: float32, data: [...]}"
            )
