"""On which device a state's tensors belong: where the model's `initialize` puts them.

A state that comes from the log has its tensors on the host. Before a model goes on from it, they are put where it would
have them itself:

* A tensor that `initialize` makes too goes to the device where that one is.
* One that it does not make (what an optimizer adds at its first step) goes to the device where all of them are, if that
  is one. Those without dimensions are not looked at for that, and stay on the host: torch mixes them with any device,
  and its optimizers count their steps there.
* Arrays, and what is on its device, stay the same objects.

Where torch has begun no work on a GPU, nothing is looked at and `initialize` is not called: all is on the host. Torch
is never imported here.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spillway.agents.models.inputs import Inputs
from spillway.agents.models.model_errors import words_of
from spillway.agents.models.stateful import Machine, a_keys_state, first_state
from spillway.checkpoint import names
from spillway.checkpoint.state import leaves
from spillway.lineage.errors import ModelError
from spillway.lineage.replication import NUMPY, TORCH, Entry
from spillway.lineage.values.plain import is_torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spillway.agents.models.state import State
    from spillway.agents.models.stateful import StatefulModel


# Whether a model can go on from a state that the log has: found before anything is served with it.
#
# A model may make states that grow, or that come to another dtype with their first update, so what it begins with says
# little of what it takes. One that says `fixed_state = True` promises that the arrays which `initialize` makes stay, by
# name, dtype and shape (others may come); the adapters of torch modules promise it. Of one that says neither that nor
# `False`, one update with its own `example()` shows whether they do. A state that lacks one, or has it in another form,
# was made by another model: by an older version of it, or by an import.

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
    if wrong := misfits(arrays(first_state(model)), found):
        raise UnfitStateError(
            f"{place}: the state in the log does not fit {type(model).__name__}: {listed(wrong)}. Serve the model "
            "that made it, import a state that fits ('spillway state import --check'), or start with an empty state "
            "under another pipeline name"
            + ("" if promise else "; if the model's arrays may change, set 'fixed_state = False' on its class")
        )


def misfits(wanted: Iterable[Entry], found: Mapping[str, Entry]) -> list[str]:
    """Return what is wrong with the entries of a state that has to have others, by name."""
    return [
        f"{entry.name!r:.80} is {_described(found[entry.name]) if entry.name in found else 'missing'}, but the model "
        f"has {_described(entry)}"
        for entry in wanted
        if found.get(entry.name) != entry
    ]


def listed(wrong: list[str]) -> str:
    """Return the first few of these as a text, and how many more there are."""
    more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    return "; ".join(wrong[:_SHOWN]) + more


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
    except BaseException as error:  # noqa: BLE001 - user code, which has to serve queries and not this one
        log.info("%s: the example does not show the state's arrays: %s", place, words_of(error))
        return False
    state = a_keys_state(machine.state) if machine.kind == "keyed" else machine.state
    return state is not None and {*arrays(first_state(model))} <= {*arrays(state)}


def arrays(state: Mapping[Any, Any]) -> list[Entry]:
    """The entries of a state that are arrays or tensors, wherever they lie; no bits are looked at."""
    found = []
    for name, leaf in leaves(state):
        if is_torch(leaf):
            found.append(Entry(name, TORCH, str(leaf.dtype).removeprefix("torch."), tuple(leaf.shape)))
        elif isinstance(leaf, np.ndarray):
            found.append(Entry(name, NUMPY, leaf.dtype.name, leaf.shape))
    return found


def _described(entry: Entry) -> str:
    return f"{entry.kind} {entry.dtype} {list(entry.shape)}" if entry.dtype else entry.kind


class Placement:
    """Where one model's tensors belong; nothing is known of it before `learn`."""

    def __init__(self) -> None:
        self._devices: dict[str, Any] | None = None  # by name; on the host too
        self._only: Any = None  # the device of them all

    def learn(self, model: StatefulModel) -> None:
        """Look where `initialize` puts tensors: the first time, and only where they can be elsewhere than on the host.

        A call before the model has learned anything costs least.
        """
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if self._devices is None and cuda is not None and cuda.is_initialized():
            self.learn_from(first_state(model))

    def learn_from(self, initial: State) -> None:
        tensors = {name: leaf for name, leaf in leaves(initial) if is_torch(leaf)}
        self._devices = {name: leaf.device for name, leaf in tensors.items()}
        devices = {leaf.device for leaf in tensors.values() if leaf.ndim}
        self._only = devices.pop() if len(devices) == 1 else None

    def put(self, state: State, *, keyed: bool) -> State:
        """The state with its tensors where they belong; of a keyed one (keys to states), each key's."""
        if not self._devices:
            return state
        return {key: self._put(each) for key, each in state.items()} if keyed else self._put(state)

    def _put(self, state: State) -> State:
        return names.nested((name, self._placed(name, leaf)) for name, leaf in leaves(state))

    def _placed(self, name: str, leaf: Any) -> Any:
        if not is_torch(leaf):
            return leaf
        device = (self._devices or {}).get(name, self._only if leaf.ndim else None)
        return leaf if device is None else leaf.to(device)
