"""What a stateful model's state is, as author and stage see it: `spillway.checkpoint.state` in models' words.

- A state is a mapping of names to tensors and small values, nested as the model likes: what may stand in it, and how it
  comes back, `spillway.checkpoint.state` says, by which the log goes too. There is no second list of it here.
- Tensors may lie on any device: a check looks at no bits, so it copies nothing off a GPU.
- The fingerprint knows a state by its content: dtype, shape and bits, wherever it lies and whoever owns it. It does not
  know tuples from lists, torch's tensors from numpy's, or the order of entries.

Torch is never imported here; a process without it can check and fingerprint a state of arrays.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from typing import Any

from spillway.checkpoint import names
from spillway.checkpoint.state import digest, flatten, leaves, of_key
from spillway.lineage.errors import CheckpointError, ModelError
from spillway.lineage.values.plain import is_torch

State = Mapping[Any, Any]


def check_state(place: str, state: object) -> None:
    """Raise ModelError, which begins with `place`, for a state that cannot be kept; it names the entry and the fix."""
    what = f"{place}: the state"
    try:
        flatten(_on_host(state, what), what)
    except CheckpointError as error:
        raise ModelError(str(error)) from error


def check_key(place: str, key: object) -> None:
    """Raise ModelError, which begins with `place`, for what can be no key of a keyed state."""
    try:
        of_key(key)
    except CheckpointError as error:
        raise ModelError(f"{place}: {error}") from error


def fingerprint(state: State) -> str:
    """The content of a state, in hexadecimal: equal where names, dtypes, shapes and bits are equal.

    It is the digest that the log goes by. It takes any mapping that can be kept, so also outputs. Raises
    CheckpointError for one that cannot.
    """
    return digest(state).hex()


def copied(state: State) -> dict[Any, Any]:
    """A copy that shares no memory with the state; tensors stay on their device."""
    return {name: _copied(value) for name, value in state.items()}


def size(state: State) -> int:
    return flatten(state).nbytes


def _on_host(state: Any, what: str) -> Any:
    """The state with an empty tensor in place of each dense one on a device: their bits are not looked at."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(state, Mapping):
        return state
    hollow: dict[str, Any] = {}
    for name, leaf in (pairs := list(leaves(state, what=what))):
        if is_torch(leaf) and leaf.device.type != "cpu" and leaf.layout is torch.strided:
            hollow[name] = leaf.new_empty((0,) * leaf.ndim, device="cpu")
    return names.nested((name, hollow.get(name, leaf)) for name, leaf in pairs) if hollow else state


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _copied(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return (list if isinstance(value, list) else tuple)(map(_copied, value))
    return value.detach().clone() if hasattr(value, "detach") else copy.deepcopy(value)
