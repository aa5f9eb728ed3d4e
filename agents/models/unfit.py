"""Whether a model can go on from a state that the log has: found before anything is served with it.

A model may make states that grow, or that come to another dtype with their first update, so what it begins with says
little of what it takes. One that says `fixed_state = True` promises that the arrays which `initialize` makes stay, by
name, dtype and shape (others may come); the adapters of torch modules promise it. Of one that says neither that nor
`False`, one update with its own `example()` shows whether they do. A state that lacks one, or has it in another form,
was made by another model: by an older version of it, or by an import.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from agents.models.inputs import Inputs
from agents.models.stateful import Machine
from checkpoint.state import leaves
from lineage.errors import ModelError
from lineage.replication import NUMPY, TORCH, Entry

if TYPE_CHECKING:
    from collections.abc import Iterable

log = logging.getLogger(__name__)
_SHOWN: Final = 5


class UnfitStateError(ModelError):
    """The log has a state that the stage's model cannot go on from; starting again changes nothing."""

    exit_code = 2


def refuse_unfit(place: str, model: Any, given: Iterable[Entry]) -> None:
    """Raise UnfitStateError, which begins with `place`, where `given` are not the entries of a state of this model's.

    Makes a first state to compare with, if the model promises that its states are alike, or a trial shows it.
    """
    promise = getattr(model, "fixed_state", None)
    if not (_stays(place, model) if promise is None else promise):
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
            + ("" if promise else "; a model whose arrays change says 'fixed_state = False'")
        )


def _stays(place: str, model: Any) -> bool:
    """Whether the first state's arrays are all there after an update with the model's example; False if unknown."""
    if not callable(getattr(model, "example", None)):
        return False
    machine = Machine(place, model)
    try:
        given = model.example()
        queries = [given] if isinstance(given, Mapping) else list(given)
        machine.compute([Inputs(dict(query), {}, "example", "example") for query in queries])
        if not machine.pending:
            return False
        machine.update()
    except Exception as error:  # noqa: BLE001 - user code, which has to serve queries and not this one
        log.info("%s: the example tells nothing of the state: %s", place, error)
        return False
    state = next(iter(machine.state.values())) if machine.kind == "keyed" else machine.state
    return {*arrays(model.initialize())} <= {*arrays(state)}


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
