"""What has to fit together in a stage's `coding:` section, or between it and other fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.topology import dag
from spillway.topology.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway.topology.reading.fields import PipelineFields, StageFields
    from spillway.topology.sections import CodingSpec


def check_coding(fields: PipelineFields, stage: StageFields) -> Iterator[Problem]:
    """Find what does not fit together; what the parity models are for, agents check, who can read their cards."""
    if coding := stage.read("coding"):
        for text in _wrong(fields, stage, coding):
            yield Problem(stage.path("coding"), text, on_key=True)


def _wrong(fields: PipelineFields, stage: StageFields, coding: CodingSpec) -> Iterator[str]:
    model = stage.spec.model
    if stage.usable("model") and (model is None or model.startswith(("sklearn:", "onnx:", "function:"))):
        yield "a parity model has a torch module's architecture; give the stage one as its 'model', or drop 'coding'"
    for name, said in (stage.spec.inputs or {}).items():
        if said.dtype is not None and not said.dtype.startswith("float"):
            yield f"input {name!r} is {said.dtype}, and only floats can be summed; send float32"
    before = _stateful_before(fields, stage)
    if before is not None:
        yield (
            f"a reconstructed answer depends on the other queries of its group, and behind stage {before!r}, which "
            "keeps a state, also on the state's versions that they saw; drop 'coding'"
        )
    if coding.encoder == "concatenation" and coding.rows > 1:
        yield "encoder 'concatenation' has one row; write 'rows: 1', or 'encoder: sum'"


def _stateful_before(fields: PipelineFields, stage: StageFields) -> str | None:
    """A stage with a version log that this one comes after."""
    by_name = {each.name: each for each in fields.stages if each.name is not None}
    edges = {name: [before for before in each.spec.after if before in by_name] for name, each in by_name.items()}
    behind = dag.reach([name for name in stage.spec.after if name in by_name], edges)
    return next((name for name, each in by_name.items() if name in behind and each.spec.replicated), None)
