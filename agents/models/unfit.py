"""Whether a model can go on from a state that the log has: found before anything is served with it.

A model may make states that grow, or that come to another dtype with their first update, so what it begins with says
little of what it takes. One that says `fixed_state = True` promises that the arrays which `initialize` makes stay, by
name, dtype and shape (others may come); the adapters of torch modules promise it. A state that lacks one, or has it in
another form, was made by another model: by an older version of it, or by an import.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from checkpoint.state import leaves
from lineage.errors import ModelError
from lineage.replication import NUMPY, TORCH, Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SHOWN: Final = 5


class UnfitStateError(ModelError):
    """The log has a state that the stage's model cannot go on from; starting again changes nothing."""

    exit_code = 2


def refuse_unfit(place: str, model: Any, given: Iterable[Entry]) -> None:
    """Raise UnfitStateError, which begins with `place`, where `given` are not the entries of a state of this model's.

    Makes a first state to compare with, if the model promises that its states are alike.
    """
    if not getattr(model, "fixed_state", False):
        return
    found = {entry.name: entry for entry in given}
    wrong = [
        f"{entry.name!r:.80} is {_described(found[entry.name]) if entry.name in found else 'missing'}, but the model "
        f"has {_described(entry)}"
        for entry in arrays(model.initialize())
        if found.get(entry.name) != entry
    ]
    if wrong:
        more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise UnfitStateError(
            f"{place}: the state in the log is not one of {type(model).__name__}: {'; '.join(wrong[:_SHOWN])}{more}. "
            "Serve the model that made it, put in one that fits ('spillway state import --check'), or serve under "
            "another pipeline name to begin anew"
        )


def arrays(state: Mapping[Any, Any]) -> list[Entry]:
    """The entries of a state that are arrays or tensors, wherever they lie; no bits are looked at."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    found = []
    for name, leaf in leaves(state):
        if torch is not None and isinstance(leaf, torch.Tensor):
            found.append(Entry(name, TORCH, str(leaf.dtype).removeprefix("torch."), tuple(leaf.shape)))
        elif numpy is not None and isinstance(leaf, numpy.ndarray):
            found.append(Entry(name, NUMPY, leaf.dtype.name, leaf.shape))
    return found


def _described(entry: Entry) -> str:
    return f"{entry.kind} {entry.dtype} {list(entry.shape)}" if entry.dtype else entry.kind
