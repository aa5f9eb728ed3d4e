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

import sys
from typing import TYPE_CHECKING, Any

from checkpoint import names
from checkpoint.state import leaves

if TYPE_CHECKING:
    from agents.models.state import State
    from agents.models.stateful import StatefulModel


class Placement:
    """Where one model's tensors belong; nothing is known of it before `learn`."""

    def __init__(self) -> None:
        self._devices: dict[str, Any] | None = None  # by name; on the host too
        self._only: Any = None  # the device of them all

    def learn(self, model: StatefulModel) -> None:
        """Look where `initialize` puts tensors: the first time, and only where they can be elsewhere than on the host.

        A call before the model has learned anything costs least.
        """
        if self._devices is None and _gpu_in_use():
            self.learn_from(model.initialize())

    def learn_from(self, initial: State) -> None:
        tensors = {name: leaf for name, leaf in leaves(initial) if _is_tensor(leaf)}
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
        if not _is_tensor(leaf):
            return leaf
        device = (self._devices or {}).get(name, self._only if leaf.ndim else None)
        return leaf if device is None else leaf.to(device)


def _gpu_in_use() -> bool:
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda is not None and bool(cuda.is_initialized())


def _is_tensor(leaf: Any) -> bool:
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    return kind is not None and isinstance(leaf, kind)
