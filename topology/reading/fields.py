"""Field by field: the values of a pipeline file as the objects of `spillway.topology.spec`, as far as they can be made.

A field that is not as it must be is a problem; it is then left out, so that what stands beside it is checked as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from spillway.topology import names
from spillway.topology.problems import Problem
from spillway.topology.quantities import shown
from spillway.topology.sections import (
    BatchingSpec,
    CacheSpec,
    CodingSpec,
    CopiesSpec,
    EnsembleSpec,
    StateSpec,
    WorkersSpec,
    kind_alone,
)
from spillway.topology.spec import PipelineSpec, StageSpec
from spillway.topology.variant_sections import VariantsSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pydantic_core import ErrorDetails

    from spillway.topology.problems import Path

_Model = TypeVar("_Model", bound=BaseModel)

_UNNAMED = "unnamed"
_ANY_STAGE = StageSpec(name=_UNNAMED)
_KIND = "is missing; write 'kind: shared' (one state for all) or 'kind: keyed' (one for each key)"
_SHARE = "is missing; give its share of right answers (0 to 1) on validation data, as in .93"
_MODEL = "is missing; name its class or function, as in 'model: models:Linear'"
_MISSING = {
    ("name",): "is missing; name the pipeline, as in 'name: plates'",
    ("slo",): "is missing; give the time within which a query must be answered, as in 'slo: 400ms'",
    ("stages",): "is missing; list the stages, each with a name and a model",
    ("cache", "bytes"): "is missing; say how much memory answers may take, as in 'cache: {bytes: 64MB}'",
    ("stages", "name"): "is missing; name the stage, as in 'name: detect'",
    ("stages", "coding", "k"): "is missing; say how many batches make a group, as in 'k: 2'",
    ("stages", "coding", "parity"): "is missing; name the folder that 'spillway train parity' writes to",
    ("stages", "ensemble", "members"): "is missing; name the models, as in 'members: {linear: {model: models:Linear}}'",
    ("ensemble", "members", "model"): _MODEL,
    ("stages", "state", "kind"): _KIND,
    ("stages", "variants", "app"): "is missing; name their application, as in 'app: digits'",
    ("variants", "of", "model"): _MODEL,
    ("variants", "of", "architecture"): "is missing; say what it is a variant of, as in 'architecture: linear'",
    ("variants", "of", "accuracy"): _SHARE,
    ("variants", "of", "takes"): "is missing; give a batch's duration by its size, as in 'takes: {1: 2ms, 8: 6ms}'",
    ("variants", "hosts", "has"): "is missing; give what one such host has, as in 'has: {core: {units: 4}}'",
}
_EXPECTED = {
    "int_type": "a whole number",
    "string_type": "text",
    "bool_type": "true or false",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "dict_type": "a mapping, as in 'field: value'",
    "model_type": "a mapping, as in 'field: value'",
    "tuple_type": "a list",
}
_MEANT: dict[str | int, str] = {
    "workers": "workers: {{count: {0}}}",
    "batching": "batching: {{max: {0}}}",
    "cache": "cache: {{bytes: {0}}}",
    "join": "join: {{mode: {0}}}",
    "takes": "takes: {{1: {0}}}",
}
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}
_LENGTHS = {
    "too_short": "is empty; give it at least one entry",
    "string_too_short": "is empty; write at least one character",
    "string_too_long": "is too long; shorten it to {max_length} characters",
}
_SECTIONS: dict[str, type[BaseModel]] = {
    "workers": WorkersSpec,
    "batching": BatchingSpec,
    "cache": CacheSpec,
    "copies": CopiesSpec,
    "coding": CodingSpec,
    "ensemble": EnsembleSpec,
    "state": StateSpec,
    "variants": VariantsSpec,
}
_STAND_INS: dict[str, dict[str, Any]] = {
    "state": {"kind": "shared"},
    "cache": {"bytes": 1},
    "coding": {"k": 2, "parity": "parity"},
    "ensemble": {"members": {_UNNAMED: {"model": "models:Model"}}},
    "variants": {
        "app": _UNNAMED,
        "of": {_UNNAMED: {"model": "models:Model", "architecture": _UNNAMED, "accuracy": 0, "takes": {1: 1}}},
    },
}  # for what a section cannot do without


@dataclass(slots=True)
class StageFields:
    """One stage: what could be read of it, and the fields that could not."""

    number: int
    spec: StageSpec
    bad: set[str]
    given: frozenset[str]
    """The fields that the file gives; one of a section as "batching.max"."""
    listed: str = "stages"
    """The list in the file that it stands in: stages or learners."""
    called: object = None
    """Its name as the file has it, even if no stage can be called so."""

    @property
    def name(self) -> str | None:
        return None if "name" in self.bad else self.spec.name

    def path(self, *steps: str | int) -> Path:
        """The path of a field; one of a section may be told as "batching.max"."""
        parts = (part for step in steps for part in (step.split(".") if isinstance(step, str) else (step,)))
        return (self.listed, self.number, *parts)

    def usable(self, *fields: str) -> bool:
        return self.bad.isdisjoint({*fields, *(each.partition(".")[0] for each in fields)})

    def read(self, field: str) -> Any:
        """Return a field's value; None where there is none, or it could not be read."""
        return getattr(self.spec, field) if self.usable(field) else None

    def predecessors(self) -> Iterator[tuple[Path, str]]:
        for position, name in enumerate(self.spec.after):
            yield self.path("after", position), name


@dataclass(slots=True)
class PipelineFields:
    """A whole file: what could be read of it, and the fields of the pipeline itself that could not."""

    head: PipelineSpec
    bad: set[str]
    stages: list[StageFields] = field(default_factory=list)
    learners: list[StageFields] = field(default_factory=list)

    def usable(self, *fields: str) -> bool:
        """Whether all these fields of the pipeline itself could be read (or were not given)."""
        return self.bad.isdisjoint(fields)

    def spec(self) -> PipelineSpec:
        """The pipeline; to be called only where there was no problem."""
        whole = {"policy": self.head.policy}
        stages = tuple(
            stage.spec if stage.spec.policy is not None else stage.spec.model_copy(update=whole)
            for stage in self.stages
        )
        learners = tuple(learner.spec for learner in self.learners)
        learners += tuple(each.learner for each in stages if each.learner is not None and each.learner not in learners)
        return self.head.model_copy(update={"stages": stages, "learners": learners})

    def of_learner(self, learner: StageFields) -> PipelineFields:
        """The fields of a learner's pipeline; what is this one's as well is checked here alone."""
        name = names.learner(self.head.name, learner.spec.name)
        head = self.head.model_copy(update={"name": name, "profile": None, "policy": None})
        alone = replace(learner, spec=learner.spec.model_copy(update={"after": ()}))
        return PipelineFields(head, self.bad | {"limits"}, [alone])


def read_fields(value: Any, problems: list[Problem]) -> PipelineFields:
    """Make what can be made of a file's value; every field that is not as it must be adds to `problems`."""
    if not isinstance(value, dict):
        problems.append(Problem((), f"a pipeline file is a mapping with name, slo and stages, not {shown(value)}"))
        return PipelineFields(
            PipelineSpec(name=_UNNAMED, slo=1.0, stages=(_ANY_STAGE,)), set(PipelineSpec.model_fields)
        )
    head = {key: part for key, part in value.items() if key not in {"stages", "learners"}}
    stand_ins = {"name": _UNNAMED, "slo": 1.0, "stages": (_ANY_STAGE,)}
    spec, bad = _validated(PipelineSpec, head | {"stages": (_ANY_STAGE,)}, (), problems, stand_ins)
    fields = PipelineFields(spec, bad)
    stages = value.get("stages")
    if isinstance(stages, list) and stages:
        fields.stages = [_stage(number, raw, problems) for number, raw in enumerate(stages)]
    elif "stages" not in value:
        problems.append(Problem(("stages",), _MISSING["stages",]))
    else:
        what = "is empty; a pipeline has at least one stage" if stages == [] else f"must be a list, not {shown(stages)}"
        problems.append(Problem(("stages",), what))
    learners = value.get("learners", [])
    if isinstance(learners, list):
        fields.learners = [_stage(number, raw, problems, "learners") for number, raw in enumerate(learners)]
    else:
        problems.append(Problem(("learners",), f"must be a list, not {shown(learners)}"))
    return fields


def _stage(number: int, raw: Any, problems: list[Problem], listed: str = "stages") -> StageFields:
    path: Path = (listed, number)
    if not isinstance(raw, dict):
        problems.append(Problem(path, f"a stage must be a mapping with a name and a model, not {shown(raw)}"))
        return StageFields(number, _ANY_STAGE, set(StageSpec.model_fields), frozenset(), listed)
    given = {key for key in raw if isinstance(key, str)}
    read, wrong = dict(raw), set()
    for name, model in _SECTIONS.items():
        part = kind_alone(raw.get(name)) if name == "state" else raw.get(name)
        if isinstance(part, dict):
            read[name], bad = _validated(model, part, (*path, name), problems, _STAND_INS.get(name, {}))
            wrong |= {f"{name}.{field}" for field in bad}
            given |= {f"{name}.{field}" for field in part if isinstance(field, str)}
    spec, bad = _validated(StageSpec, read, path, problems, {"name": _UNNAMED})
    return StageFields(number, spec, bad | wrong, frozenset(given), listed, raw.get("name"))


def _validated(
    model: type[_Model], raw: Mapping[Any, Any], at: Path, problems: list[Problem], stand_ins: Mapping[str, Any]
) -> tuple[_Model, set[str]]:
    bad: set[str] = set()
    strangers = [key for key in raw if not isinstance(key, str)]
    problems += [
        Problem((*at, key), f"a field's name must be text, not {shown(key)}", on_key=True) for key in strangers
    ]
    good = {key: part for key, part in raw.items() if isinstance(key, str)}
    try:
        return model.model_validate(good), bad
    except ValidationError as error:
        for each in error.errors(include_url=False):
            problems.append(_problem(model, at, each))
            bad.add(str(each["loc"][0]))
    rest = {key: part for key, part in good.items() if key not in bad}
    return model.model_validate({**{key: part for key, part in stand_ins.items() if key not in rest}, **rest}), bad


def _problem(model: type[BaseModel], at: Path, error: ErrorDetails) -> Problem:
    steps: Path = tuple(error["loc"])
    on_key = steps[-1] == "[key]"
    path = (*at, *(steps[:-1] if on_key else steps))
    kind, context, given = error["type"], error.get("ctx", {}), error.get("input")
    if kind == "extra_forbidden":
        known = list(_owner(model, steps).model_fields)
        return Problem(path, f"there is no such field; {names.meant(str(steps[-1]), known)}", on_key=True)
    if kind == "invalid_key":
        return Problem(path, f"a field's name must be text, not {shown(given)}", on_key=True)
    if kind == "missing":
        fields = tuple("stages" if step == "learners" else step for step in path if isinstance(step, str))
        if fields[1:2] == ("tables",) and fields[-1] == "of":
            return Problem(path, "is missing; name a learner, or a stage that publishes, as in 'of: taste'")
        keys = (fields, fields[-2:], (*fields[1:3], fields[-1]))  # the last: of one of several, whatever its name
        return Problem(path, next((_MISSING[key] for key in keys if key in _MISSING), "is missing; add it"))
    if on_key and kind == "string_type":
        text = f"a name here must be text, not {shown(given)}; put it in quotes"
    elif on_key:
        bare = "; write it without quotes" if kind == "int_type" and isinstance(given, str) else ""
        text = _text(kind, context, given) + bare
    else:
        text = _meant(kind, steps[-1], given) or _text(kind, context, given)
    return Problem(path, text, on_key=on_key)


def _meant(kind: str, field: str | int, given: Any) -> str | None:
    """What is to be written where the value of a section's most usual field stands in place of the section."""
    if kind not in {"model_type", "dict_type"} or field not in _MEANT or type(given) not in {int, str}:
        return None
    return f"must be a mapping, not {shown(given)}; write '{_MEANT[field].format(given)}'"


def _text(kind: str, context: Mapping[str, Any], given: Any) -> str:
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        choices = str(context["expected"])
        return f"must be {choices}, not {shown(given)}"
    if kind in _BOUNDS:
        words, bound = _BOUNDS[kind]
        return f"must be {words} {context[bound]:.15g}, not {given}"
    if kind in _LENGTHS:
        return _LENGTHS[kind].format(**context)
    if kind in _EXPECTED:
        quotes = "; put it in quotes" if kind == "string_type" and not isinstance(given, (dict, list)) else ""
        return f"must be {_EXPECTED[kind]}, not {shown(given)}{quotes}"
    raise AssertionError(f"no text for pydantic's {kind}")  # a new kind of field needs its text above


def _owner(model: type[BaseModel], steps: Sequence[str | int]) -> type[BaseModel]:
    """Return the model whose field the last of these steps is; a step may be one of the author's names."""
    for step in steps[:-1]:
        if step in model.model_fields:
            model = _model_in(model.model_fields[str(step)].annotation) or model
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in get_args(annotation) if (found := _model_in(each)) is not None), None)
