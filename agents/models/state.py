"""What the state of a stateful model is: a mapping of names to values that can be copied, compared and kept.

- A value is a torch tensor, a numpy array, or a small plain value: None, bool, int of 64 bits, float, str, bytes, and
  lists and maps (with string keys) of those, at most SMALL_BYTES written out. Large things belong into arrays.
- Arrays and tensors stand at the top, under a name of their own: what did not change is found, and kept, by name.
- A model must not tell a tuple from a list, nor a numpy scalar from Python's. An array comes back as an array, a tensor
  as a tensor.
- The fingerprint knows a state by its content: dtype, shape and bits, wherever it lies and whoever owns it.

Torch is never imported here; a process without it can check and fingerprint a state of arrays.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from checkpoint.state import digest
from lineage.errors import ModelError
from lineage.values import tensors

State = Mapping[str, Any]

SMALL_BYTES = 64 << 10
NAME_BYTES = 256
_LONG = 1 << 63


def check_state(place: str, state: object) -> None:
    """Raise ModelError, which begins with `place`, for a state that cannot be kept; it names the value and the fix."""
    if not isinstance(state, Mapping):
        raise ModelError(f"{place}: a state must be a mapping of names to arrays and values, not {_kind(state)}")
    for name, value in state.items():
        if not isinstance(name, str) or not name or len(name.encode("utf-8", "surrogatepass")) > NAME_BYTES:
            raise ModelError(f"{place}: a name must be a string of 1 to {NAME_BYTES} bytes, not {name!r:.80}")
        try:
            _check_value(value)
        except (TypeError, ValueError) as error:
            raise ModelError(f"{place}: state[{name!r}] cannot be kept: {error}") from error


def fingerprint(state: State) -> str:
    """The content of a state, in hexadecimal: equal where names, dtypes, shapes and bits are equal.

    It is the digest that the log goes by (`checkpoint.state`), with numpy's scalars taken for Python's. It takes any
    mapping whose values travel, so also outputs. Raises CheckpointError for a value that does not.
    """
    return digest(_scalars_plain(state)).hex()


def copied(state: State) -> dict[str, Any]:
    """A copy that shares no memory with the state; tensors stay on their device."""
    return {name: _copied(value) for name, value in state.items()}


def size(state: State) -> int:
    """Bytes of the state's arrays and tensors."""
    return sum(value.nbytes for value in state.values() if tensors.is_tensor(value))


def plain(value: Any) -> Any:
    """A small value as it comes back: tuples as lists, maps in the order of their keys, numpy's scalars as Python's.

    Raises TypeError or ValueError, with the fix, for what does not travel.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | float | str | bytes):
        return value
    if isinstance(value, int):
        if not -_LONG <= value < _LONG:
            raise ValueError("an int must fit 64 bits; keep a larger one as text")
        return value
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) for name in value):
            raise TypeError("the keys of a map must be strings")
        return {name: plain(value[name]) for name in sorted(value)}
    if tensors.is_tensor(value):
        raise TypeError("arrays and tensors must stand at the top of the state, each under a name of its own")
    raise TypeError(
        f"{_kind(value)} is neither an array, nor a tensor, nor a plain value (None, bool, int, float, str, bytes, "
        "list, map)"
    )


def _check_value(value: Any) -> None:
    if not tensors.is_tensor(value):
        length = len(repr(plain(value)))
        if length > SMALL_BYTES:
            raise ValueError(f"it takes {length} characters, over {SMALL_BYTES} for a plain value; keep it in an array")
        return
    if isinstance(value, np.ndarray):
        if isinstance(value, np.ma.MaskedArray) or value.dtype.name not in tensors.DTYPE_NAMES:
            raise TypeError(f"an array of {value.dtype} has no fixed bits; use one of {_names()}")
    elif not isinstance(value, tensors.Bfloat16):
        if value.layout is not sys.modules["torch"].strided:
            raise TypeError(f"a tensor of layout {value.layout} has no fixed bits; keep it dense")
        if str(value.dtype).removeprefix("torch.") not in tensors.DTYPE_NAMES:
            raise TypeError(f"a tensor of {value.dtype} cannot be kept; use one of {_names()}")


def _scalars_plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [_scalars_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {name: _scalars_plain(each) for name, each in value.items()}
    return value


def _copied(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    return value.detach().clone() if tensors.is_tensor(value) else plain(value)


def _kind(value: object) -> str:
    return f"a value of type {type(value).__qualname__}"


def _names() -> str:
    return ", ".join(sorted(tensors.DTYPE_NAMES))
