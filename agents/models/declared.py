"""Whether a model is what its stage says of it: stateful or not, with one state or with one per key.

A stage's `state` is said twice, in the pipeline file and by the model's methods, and both have to say the same: a model
that learns in a stage without `state` would lose what it learnt, silently. Each error names the stage, the class and
what to change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway.agents.models.loading import construct, load_model
from spillway.agents.models.model_errors import words_of
from spillway.agents.models.state import check_state
from spillway.agents.models.stateful import Kind, check_model, first_state, is_stateful
from spillway.lineage.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway.agents.models.stateful import StatefulModel


class UndeclaredError(ModelError):
    """The model is right by itself, but its stage declares another state."""


def load_declared(
    stage: str, name: str, arguments: Mapping[str, Any], device: str, declared: Kind, *, publishes: bool = False
) -> StatefulModel:
    """Construct a stateful model, check its form, and that it has the state that its stage declares and `publishes`.

    Raises ModelError, and UndeclaredError where the declaration is at fault. A model with a method `to(device)`, as the
    adapters of torch modules have, is moved there.
    """
    place = f"stage {stage!r}: model {name!r}"
    model = construct(place, name, arguments)
    told = type(model).__name__
    if not is_stateful(model) and callable(getattr(model, "predict", None)):
        raise UndeclaredError(
            f"{place}: {told} has predict and keeps no state; drop 'state: {declared}', or give it initialize, compute "
            "and update in place of predict"
        )
    kind = check_model(place, model)
    if kind != declared:
        why = "has a method key, so it keeps a state per key" if kind == "keyed" else "has no method key(self, query)"
        other = (
            "drop that method" if kind == "keyed" else "give it one that returns the key of the state that a query uses"
        )
        raise UndeclaredError(f"{place}: {told} {why}; say 'state: {kind}', or {other}")
    if publishes and not hasattr(model, "publish"):
        raise ModelError(f"{place}: {told} has no method publish(self, state); add it, or drop 'publish'")
    if device != "cpu" and callable(getattr(model, "to", None)):
        model.to(device)
    return model  # type: ignore[no-any-return]


def try_model(
    stage: str, name: str, arguments: Mapping[str, Any], declared: Kind | None, *, publishes: bool = False
) -> None:
    """Construct a stage's model on the CPU and see whether it could serve there; of a stateful one its first state too.

    Raises ModelError, and UndeclaredError where the declaration is at fault.
    """
    if declared is None:
        load_model(stage, name, arguments)
        return
    model = load_declared(stage, name, arguments, "cpu", declared, publishes=publishes)
    place = f"stage {stage!r}: model {name!r}: {type(model).__name__}.initialize"
    try:
        state = first_state(model)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ModelError(f"{place} failed: {words_of(error)}") from error
    check_state(place, state)
