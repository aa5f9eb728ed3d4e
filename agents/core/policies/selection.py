"""A setting such as `pard:quantile=.2,window=auto`, read and checked: the policy, and its parameters.

The same text serves the command line, the pipeline file (where a mapping may stand for it) and a stage's process.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic import BaseModel, ValidationError

from spillway.agents.core.policy import Policy
from spillway.lineage.errors import UsageError
from spillway.topology.names import meant

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from spillway.agents.core.policy import StageView


@dataclass(frozen=True, slots=True)
class Selection:
    """A policy that was selected; its parameters are checked."""

    name: str  # or `module:Class`
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


def reference_in(setting: str, policies: Collection[str]) -> str | None:
    """Return the `module:Class` of a policy of the user's own; None where the setting names none of these."""
    module, _, rest = setting.partition(":")
    name = rest.partition(":")[0].strip()
    if module.strip() in policies or not name or "=" in name:
        return None
    return f"{module.strip()}:{name}"


def select(
    setting: str, policies: Mapping[str, type[Policy]], load: Callable[[str], object] | None = None
) -> Selection:
    """Read a setting; `load` finds a user's own class. Raises UsageError that says what is wrong and what there is."""
    reference = reference_in(setting, policies)
    if reference is not None and load is not None:
        name, rest = reference, setting.partition(":")[2].partition(":")[2]
        kind = _policy_class(name, load(name))
    else:
        name, rest = setting.partition(":")[::2]
        name = name.strip()
        if name not in policies:
            known = meant(name, policies)
            raise UsageError(f"there is no policy {name!r}; {known} (one of your own is written module:Class)")
        kind = policies[name]
    values = _values(name, rest)
    model = kind.parameters_type
    if model is None:
        if values:
            raise UsageError(f"policy {name} has no parameter {next(iter(values))!r}; it takes none")
        return Selection(name, kind, None)
    for key in values:
        if key not in model.model_fields:
            raise UsageError(f"policy {name} has no parameter {key!r}; {meant(key, model.model_fields)}")
    try:
        parameters = model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(step) for step in first["loc"][:1])
        raise UsageError(f"policy {name}, parameter {key}={values.get(key, '')}: {first['msg']}") from None
    return Selection(name, kind, parameters, tuple(f"{key}={value}" for key, value in values.items()))


_NEEDED: Final = ("push", "pop", "__len__", "remove")


def _policy_class(name: str, found: object) -> type[Policy]:
    """Return `found`, if a queue can be run by it. Raises UsageError that says what it lacks."""
    if not isinstance(found, type) or not issubclass(found, Policy):
        base = f"{Policy.__module__}.{Policy.__name__}"
        raise UsageError(f"policy {name!r} is no policy: derive the class from {base}, or from one of Spillway's own")
    lacks = [method for method in _NEEDED if getattr(found, method) is getattr(Policy, method)]
    if lacks:
        fix = "define it, or derive from spillway.agents.core.policies.fifo.Fifo"
        raise UsageError(f"policy {name!r} has no method {lacks[0]!r}: {fix}")
    model = found.parameters_type
    if model is not None and not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise UsageError(f"policy {name!r}: parameters_type must be a subclass of Parameters, not {model!r:.80}")
    takes = "(self, view)" if model is None else "(self, view, parameters)"
    try:
        inspect.signature(found).bind(*takes.split()[1:])
    except TypeError as error:
        raise UsageError(f"policy {name!r}: its __init__ must take {takes}: {error}") from None
    return found


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
