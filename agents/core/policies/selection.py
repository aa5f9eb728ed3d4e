"""A setting such as `pard:quantile=.2,window=auto`, read and checked: the policy, and its parameters.

The same text serves the command line, the pipeline file (where a mapping may stand for it) and a stage's process.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, ValidationError

from spillway.lineage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from spillway.agents.core.policy import Policy, StageView


@dataclass(frozen=True, slots=True)
class Selection:
    """A policy that was selected; its parameters are checked."""

    name: str
    kind: type[Policy]
    parameters: BaseModel | None
    given: tuple[str, ...] = ()  # the parameters that differ from their defaults, as key=value

    def __str__(self) -> str:
        return f"{self.name}:{','.join(self.given)}" if self.given else self.name

    def build(self, view: StageView) -> Policy:
        if self.parameters is None:
            return self.kind(view)
        kind = cast("Callable[[StageView, BaseModel], Policy]", self.kind)
        return kind(view, self.parameters)


def select(setting: str, policies: Mapping[str, type[Policy]]) -> Selection:
    """Read a setting. Raises UsageError that says what is wrong and what there is."""
    name, _, rest = setting.partition(":")
    name = name.strip()
    kind = policies.get(name)
    if kind is None:
        raise UsageError(f"there is no policy {name!r}; {_meant(name, policies, 'policies')}")
    values = _values(name, rest)
    model = kind.parameters_type
    if model is None:
        if values:
            raise UsageError(f"policy {name} has no parameter {next(iter(values))!r}; it takes none")
        return Selection(name, kind, None)
    for key in values:
        if key not in model.model_fields:
            raise UsageError(f"policy {name} has no parameter {key!r}; {_meant(key, model.model_fields, 'parameters')}")
    try:
        parameters = model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(step) for step in first["loc"][:1])
        raise UsageError(f"policy {name}, parameter {key}={values.get(key, '')}: {first['msg']}") from None
    return Selection(name, kind, parameters, tuple(f"{key}={value}" for key, value in values.items()))


def _values(name: str, text: str) -> dict[str, Any]:
    values = {}
    for part in text.split(",") if text.strip() else ():
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not key or not value:
            raise UsageError(f"policy {name}: {part.strip()!r} is not a parameter; write it as in quantile=.2")
        if key in values:
            raise UsageError(f"policy {name}: parameter {key!r} is given twice")
        values[key] = value
    return values


def _meant(name: str, known: Collection[str], what: str) -> str:
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}the {what} are: {', '.join(known)}"
