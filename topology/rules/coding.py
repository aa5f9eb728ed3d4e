"""What has to fit together in a stage's `coding:` section, or between it and other fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.topology.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway.topology.reading.fields import PipelineFields, StageFields


def check_coding(fields: PipelineFields, stage: StageFields, problems: list[Problem]) -> None:
    """Add what does not fit together; what the parity models are for, agents check, who can read their cards."""
    if stage.spec.coding is not None and stage.usable("coding"):
        problems += [Problem(stage.path("coding"), text, on_key=True) for text in _wrong(fields, stage)]


def _wrong(fields: PipelineFields, stage: StageFields) -> Iterator[str]:
    spec, coding = stage.spec, stage.spec.coding
    if spec.state is not None and stage.usable("state"):
        yield "a model with a state answers from that state, which a parity model does not have; drop 'coding'"
    elif stage.usable("model") and (spec.model is None or spec.model.startswith(("sklearn:", "onnx:", "function:"))):
        yield "a parity model has a torch module's architecture; give the stage one as its 'model', or drop 'coding'"
    for name, said in (spec.inputs or {}).items():
        if said.dtype is not None and not said.dtype.startswith("float"):
            yield f"input {name!r} is {said.dtype}, and only floats can be summed; send float32"
    if spec.copies is not None and stage.usable("copies"):
        yield "a batch can be copied or coded, not both; drop 'copies' or 'coding'"
    before = _stateful_before(fields, stage)
    if before is not None:
        yield (
            f"a reconstructed answer depends on the other queries of its group, and behind stage {before!r}, which "
            "keeps a state, also on the state's versions that they saw; drop 'coding'"
        )
    if coding is not None and coding.encoder == "concatenation" and coding.rows > 1:
        yield "encoder 'concatenation' has one row; write 'rows: 1', or 'encoder: sum'"


def _stateful_before(fields: PipelineFields, stage: StageFields) -> str | None:
    """A stage with a version log that this one comes after."""
    by_name = {each.name: each for each in fields.stages if each.name is not None}
    seen: set[str] = set()
    waiting = [name for _, name in stage.predecessors()]
    while waiting:
        name = waiting.pop()
        other = by_name.get(name)
        if other is None or name in seen:
            continue
        seen.add(name)
        if other.spec.replicated:
            return name
        waiting += [before for _, before in other.predecessors()]
    return None
