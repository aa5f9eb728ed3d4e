"""The values that travel between processes, and how Python's other values become one of them.

    null, bool, int (64 bits, signed), float, string (UTF-8), bytes
    a list of values, a map with string keys
    a tensor of a dtype in `DTYPES`, or of bfloat16

Clients, stages and workers go by this table. Tuples become lists; numpy's scalars and subclasses of Python's types
become the plain type; a tensor of torch that requires gradients, is conjugated or lies on a device becomes a plain one
in memory. Anything else is refused: masked arrays, dates, objects, integers beyond 64 bits.

This module needs numpy alone, as a worker with an interpreter of its own loads it by its path.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

_INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
NAMES: Final = ("bool", *_INTEGERS, "float16", "float32", "float64", "complex64", "complex128")
BFLOAT16: Final = "bfloat16"
DTYPES: Final[dict[str, np.dtype[Any]]] = {name: np.dtype(name).newbyteorder("<") for name in NAMES}
BITS: Final = np.dtype("<u2")
NAME_OF: Final = {dtype: name for name, dtype in DTYPES.items()}
MOST_DEPTH: Final = 100  # of lists and maps within one another; a pipeline's limit may be less
MOST_VALUES: Final = 262_144  # of one answer; a pipeline's limit may be less
LONG_LEAST, LONG_MOST = -(1 << 63), (1 << 63) - 1
_PLAIN_KINDS = frozenset("biuf")  # not datetimes, whose `item` may be a bare number
_ATOMS = frozenset({type(None), bool, float, bytes})


class PlainError(Exception):
    """A value that cannot travel; the text says which and why."""

    def __init__(self, text: str, path: str = "") -> None:
        super().__init__(f"{path}: {text}" if path else text)
        self.text, self.path = text, path

    def within(self, name: str) -> PlainError:
        return PlainError(self.text, f"{name}.{self.path}" if self.path else name)


@dataclass(slots=True, frozen=True, eq=False)
class Bfloat16:
    """A bfloat16 tensor in a process without torch: its bits, as unsigned 16-bit integers of the tensor's shape."""

    bits: np.ndarray[Any, np.dtype[np.uint16]]

    def float32(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        return (self.bits.astype(np.uint32) << 16).view(np.float32)

    def torch(self) -> torch.Tensor:
        """The same tensor as torch's (a copy, as torch knows no read-only tensors). Imports torch."""
        import torch  # noqa: PLC0415  a process that has no use for torch must not pay for it

        return torch.from_numpy(self.bits.astype(np.int16)).view(torch.bfloat16)


def is_tensor(value: Any) -> bool:
    return isinstance(value, (np.ndarray, Bfloat16)) or is_torch(value)


def is_torch(value: Any) -> bool:
    # None too where another thread is in the middle of importing torch: then nobody holds a tensor yet.
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    return kind is not None and isinstance(value, kind)


def tensor(value: Any) -> tuple[str, np.ndarray[Any, Any]]:
    """Return the dtype's name and the elements, little-endian, of a tensor; of bfloat16 its bits. Raises PlainError."""
    if isinstance(value, np.ndarray):
        found = NAME_OF.get(value.dtype)
        if found is None or isinstance(value, np.ma.MaskedArray):
            return _little_endian(value)
        return found, value
    if isinstance(value, Bfloat16):
        return BFLOAT16, np.asarray(value.bits, BITS)
    torch = sys.modules["torch"]
    try:
        plain = value.detach().cpu().resolve_conj().resolve_neg()
        if plain.dtype == torch.bfloat16:
            return BFLOAT16, plain.contiguous().view(torch.int16).numpy().view(BITS)
        array: np.ndarray[Any, Any] = plain.numpy()
    except Exception as error:  # torch, and subclasses of its tensors, raise many kinds
        raise PlainError(f"a torch tensor of {value.dtype} cannot travel: {error}") from error
    found = NAME_OF.get(array.dtype)
    return (found, array) if found is not None else _little_endian(array)


def _little_endian(array: np.ndarray[Any, Any]) -> tuple[str, np.ndarray[Any, Any]]:
    if isinstance(array, np.ma.MaskedArray):
        raise PlainError("a masked array cannot travel: fill it, or send the mask beside it")
    dtype = array.dtype.newbyteorder("<") if array.dtype.kind in "biufc" else array.dtype
    name = NAME_OF.get(dtype)
    if name is None:
        raise PlainError(f"an array of dtype {array.dtype} cannot travel; use one of {', '.join(NAMES)}")
    return name, array.astype(dtype)


def scalar(value: Any) -> Any:
    """Return the plain value, or 0-dimensional array, of a numpy scalar or a subclass of a plain type.

    Raises PlainError for everything else, and for an integer beyond 64 bits.
    """
    if isinstance(value, np.generic) and not isinstance(value, (str, bytes)):  # of these `item` drops NULs at the end
        plain = value.item() if value.dtype.kind in _PLAIN_KINDS else None
        if isinstance(plain, (bool, float)) or (isinstance(plain, int) and plain <= LONG_MOST):
            return plain
        return tensor(np.asarray(value))[1]
    if isinstance(value, str):
        return str.__str__(value)  # not str(value): an enum's is its name
    if isinstance(value, int):
        value = int(value)
        if not LONG_LEAST <= value <= LONG_MOST:
            raise PlainError("an int does not fit 64 bits")
        return value
    if isinstance(value, float):
        return float(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise PlainError(f"a value of type {type(value).__qualname__} cannot travel")


def plain(value: Any, left: list[int], depth: int = 0) -> Any:
    """Return a value of the table that equals `value`, with containers of its own. Tensors may share memory with it.

    `left[0]` counts down the values that there may still be. Raises PlainError for what cannot travel.
    """
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is str:
        return value if value.isascii() else _text(value)
    if kind is np.ndarray or is_tensor(value):
        name, array = tensor(value)
        return Bfloat16(array) if name == BFLOAT16 else np.asarray(array)
    if isinstance(value, (list, tuple)):
        _count(len(value), left, depth)
        return [plain(each, left, depth + 1) for each in value]
    if isinstance(value, dict):
        return plain_map(value, left, depth + 1)
    made = scalar(value)
    return _text(made) if type(made) is str else made


def plain_map(values: Mapping[Any, Any], left: list[int], depth: int = 0) -> dict[str, Any]:
    """Return a map of plain values; see `plain`."""
    _count(len(values), left, depth)
    made = {}
    for name, value in values.items():
        kind = type(value)
        if type(name) is not str or not name.isascii():
            name = _name(name)  # noqa: PLW2901
        if kind in _ATOMS or (kind is np.ndarray and value.dtype in NAME_OF) or (kind is str and value.isascii()):
            made[name] = value  # as nearly all are
            continue
        try:
            made[name] = plain(value, left, depth)
        except PlainError as error:
            raise error.within(name) from error
    return made


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise PlainError(f"a name must be a string, not {name!r:.80}")
    return _text(str.__str__(name))


def _count(count: int, left: list[int], depth: int) -> None:
    left[0] -= count
    if left[0] < 0:
        raise PlainError("it holds too many values")
    if depth > MOST_DEPTH:
        raise PlainError(f"it is nested more than {MOST_DEPTH} deep")


def _text(text: str) -> str:
    try:
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError as error:
        raise PlainError(f"a string is not UTF-8: {error.reason}") from error
    return text
