"""Whether a state is one that a stage's model can go on from: its entries are those that `initialize()` makes.

Names, kinds, dtypes and shapes are compared, not values. A model whose states grow (a list of tensors, a mapping that
learns names) makes others than it begins with, and may; so the question is asked only where an operator wants it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from agents.models.loading import load_stateful_model
from agents.models.state import check_state
from checkpoint.state import flatten
from lineage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lineage.replication import Entry
    from topology.spec import StageSpec

_SHOWN: Final = 5


def refuse_misfit(stage: StageSpec, state: Mapping[Any, Any], keyed: Mapping[str, Mapping[Any, Any]] | None) -> None:
    """Raise UsageError for a state with other entries than the stage's model makes; ModelError where it has none."""
    if stage.model is None:
        raise UsageError(f"stage {stage.name!r} names no model to check the state against; leave out --check")
    model = load_stateful_model(stage.name, stage.model, stage.arguments)
    initial = model.initialize()
    check_state(f"stage {stage.name!r}: initialize", initial)
    wanted = {entry.name: entry for entry in flatten(initial).entries}
    parts = (
        {"the state": state} if keyed is None else {f"the state of key {key!r}": each for key, each in keyed.items()}
    )
    for what, part in parts.items():
        wrong = _misfits(wanted, {entry.name: entry for entry in flatten(part).entries})
        if wrong:
            more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
            raise UsageError(f"{what} does not fit the model {stage.model}: {'; '.join(wrong[:_SHOWN])}{more}")


def _misfits(wanted: Mapping[str, Entry], given: Mapping[str, Entry]) -> list[str]:
    wrong = [f"{name!r:.80} is missing" for name in wanted if name not in given]
    wrong += [f"{name!r:.80} is none of the model's" for name in given if name not in wanted]
    return wrong + [
        f"{name!r:.80} is {described(given[name])}, but the model has {described(entry)}"
        for name, entry in wanted.items()
        if name in given and given[name] != entry
    ]


def described(entry: Entry) -> str:
    return f"{entry.kind} {entry.dtype} {list(entry.shape)}" if entry.dtype else entry.kind
