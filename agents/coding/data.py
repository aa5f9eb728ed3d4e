"""Queries to train parity models with and to grade them on: arrays whose first axis is the queries."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spillway.agents.coding.card import Tensor
from spillway.agents.coding.codes import Sum
from spillway.agents.models.inputs import Inputs
from spillway.lineage.errors import ModelError, UsageError
from spillway.lineage.values.npz import read_npz
from spillway.producers.recording import read_recording
from spillway.producers.recording.history import inputs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from spillway.agents.coding.codes import Arrays, Code
    from spillway.agents.models.loading import Model
    from spillway.topology.spec import PipelineSpec, StageSpec

LABEL: Final = "label"  # of the arrays, that which is no input
_BATCH: Final = 64  # queries of one call of a model


@dataclass(frozen=True, slots=True)
class Data:
    """Queries, and what they should be answered with where that is known."""

    inputs: Arrays
    label: NDArray[Any] | None = None
    left_out: int = 0
    """Queries of a recording that are not among these."""

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def at(self, places: NDArray[Any]) -> Data:
        label = None if self.label is None else self.label[places]
        return Data({name: value[places] for name, value in self.inputs.items()}, label)

    def split(self, share: float, seed: int) -> tuple[Data, Data]:
        """A part, and a random share that is held out of it."""
        order = np.random.default_rng(seed).permutation(len(self))
        held = round(share * len(self))
        return self.at(order[held:]), self.at(order[:held])


def read_data(source: str, stage: StageSpec) -> Data:
    """Read an .npz file, or what a `module:function` returns: an array for each input of the stage, and `label` or not.

    Raises UsageError for what cannot be coded: inputs that are not floats, or not as the stage declares them.
    """
    arrays = _arrays(source)
    label = arrays.pop(LABEL, None)
    _check(source, arrays, label, stage)
    return Data(arrays, label)


def recorded_data(directory: Path, pipeline: PipelineSpec, stage: StageSpec) -> Data:
    """Read the queries of a recording (`spillway record`), for a stage that is given them as they came.

    Those of other shapes than most, or not finite, are left out: when it is served the stage does not code them either.
    Raises UsageError for another pipeline's recording, a stage behind others, and what cannot be coded.
    """
    recording = read_recording(directory)
    if recording.about.pipeline != pipeline.name:
        raise UsageError(f"{directory} is a recording of pipeline {recording.about.pipeline!r}, not {pipeline.name!r}")
    if stage.after:
        raise UsageError(
            f"{directory} holds the inputs of {pipeline.name!r}, but stage {stage.name!r} gets what "
            f"{', '.join(stage.after)} makes of them: give the stage's own inputs with --data"
        )
    kinds: dict[Any, list[dict[str, NDArray[Any]]]] = {}
    every = list(inputs(recording, pipeline.limits.merged()))
    for query in every:
        arrays = {name: np.asarray(query[name]) for name in sorted(query)}
        if all(value.dtype.kind != "f" or np.isfinite(value).all() for value in arrays.values()):
            kind = tuple((name, value.dtype, value.shape) for name, value in arrays.items())
            kinds.setdefault(kind, []).append(arrays)
    if not kinds:
        raise UsageError(f"{directory} holds no readable query: record while the pipeline is in use")
    most = max(kinds.values(), key=len)
    stacked = {name: np.stack([query[name] for query in most]) for name in most[0]}
    _check(str(directory), stacked, None, stage)
    return Data(stacked, left_out=len(every) - len(most))


def _check(source: str, arrays: Arrays, label: NDArray[Any] | None, stage: StageSpec) -> None:
    sizes = {name: len(value) if value.ndim else 0 for name, value in arrays.items()}
    if label is not None:
        sizes[LABEL] = len(label)
    if not arrays or len(set(sizes.values())) != 1 or 0 in sizes.values():
        raise UsageError(f"{source} must have arrays with the same number of queries, and has {sizes or 'none'}")
    declared = stage.inputs or dict.fromkeys(arrays)
    if declared.keys() != arrays.keys():
        raise UsageError(f"{source} has inputs {', '.join(arrays)}; stage {stage.name!r} takes {', '.join(declared)}")
    for name, value in arrays.items():
        said = declared[name]
        if said is not None and said.dtype is not None and said.dtype != value.dtype.name:
            raise UsageError(
                f"{source}: {name!r} is {value.dtype.name}; stage {stage.name!r} declares {said.dtype}: convert it"
            )
        if value.dtype.kind != "f":
            raise UsageError(
                f"{source}: {name!r} is {value.dtype.name}; only floats can be summed without overflow: send float32"
            )
        if not np.isfinite(value).all():
            raise UsageError(f"{source}: {name!r} has values that are not finite: leave out their queries")


def _arrays(source: str) -> dict[str, NDArray[Any]]:
    if ":" not in source:
        try:
            return read_npz(Path(source))
        except (OSError, ValueError) as error:
            raise UsageError(f"{source} is neither an .npz file of arrays nor a module:function: {error}") from error
    module, _, name = source.partition(":")
    try:
        made = getattr(importlib.import_module(module), name)()
    except Exception as error:
        raise UsageError(f"the data function {source} failed: {error!r}") from error
    return {name: np.asarray(value) for name, value in dict(made).items()}


def answers(place: str, model: Model, queries: Sequence[Mapping[str, Any]]) -> dict[str, NDArray[Any]]:
    """What a model answers to queries, stacked by name.

    Raises ModelError, which begins with `place`, for answers that cannot be coded: they are float arrays, each of one
    shape, under the same names for every query.
    """
    rows: list[Mapping[str, Any]] = []
    for start in range(0, len(queries), _BATCH):
        rows += model.predict([Inputs(dict(query), {}, "") for query in queries[start : start + _BATCH]])
    if len(rows) != len(queries) or any(row.keys() != rows[0].keys() for row in rows):
        raise ModelError(f"{place} must answer every query, each with the same outputs")
    made: dict[str, NDArray[Any]] = {}
    for name in rows[0]:
        try:
            made[name] = np.stack([np.asarray(row[name]) for row in rows])
        except ValueError as error:
            raise ModelError(f"{place}: output {name!r} must have the same shape for every query: {error}") from error
        if made[name].dtype.kind != "f" or not np.isfinite(made[name]).all():
            raise ModelError(
                f"{place}: output {name!r} is {made[name].dtype.name}, or not finite, and cannot be coded; let the "
                "model return only finite floats, and derive other outputs from them in the stage's coding.finish"
            )
    return made


def tensors(arrays: Arrays) -> dict[str, Tensor]:
    return {name: Tensor(dtype=value.dtype.name, shape=value.shape[1:]) for name, value in arrays.items()}


def rows_of(arrays: Arrays, places: Iterable[int]) -> list[dict[str, NDArray[Any]]]:
    return [{name: value[place] for name, value in arrays.items()} for place in places]


def groups(count: int, k: int, chance: np.random.Generator) -> NDArray[np.int64]:
    """As many groups of k as there are queries, (count, k): each query is once at each place, beside random others."""
    return np.stack([chance.permutation(count) for _ in range(k)], axis=1)


def encoded(code: Code, row: int, inputs: Arrays, members: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """The parity queries of a row for the groups of `members`, stacked by name."""
    if isinstance(code, Sum) and type(code).encode is Sum.encode:  # number by number, so all groups at once
        return code.encode([{name: value[places] for name, value in inputs.items()} for places in members.T], row)
    made = [code.encode(rows_of(inputs, group), row) for group in members]
    return {name: np.stack([query[name] for query in made]) for name in made[0]}
