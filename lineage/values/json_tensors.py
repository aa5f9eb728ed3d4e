"""A tensor as a JSON object and back: exactly, or not at all.

Up to 10,000 elements it is {"dtype", "shape", "data"} with the elements as nested lists, a complex number as a pair of
real and imaginary part; above that {"dtype", "shape", "base64"} with its bytes, little-endian and in C order. Both are
read at any size. Floats are rounded to the nearest; anything else that the dtype cannot hold is refused.
"""

from __future__ import annotations

import base64
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spillway.lineage import reasons
from spillway.lineage.errors import WireError
from spillway.lineage.limits import too_large
from spillway.lineage.values.tensors import BFLOAT16, DTYPES, WIRE_DTYPES, Bfloat16, named

if TYPE_CHECKING:
    from spillway.lineage.limits import Limits

MOST_LISTED: Final = 10_000  # elements of a tensor that is written as lists
NON_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_PAIRS: Final = "a complex number is a pair of real and imaginary part"
_FROM_TEXT: Final = {text: float(text) for text in NON_FINITE.values()}
_TAKEN: Final[dict[str, set[type]]] = {
    "b": {bool},
    "i": {int, float},
    "u": {int, float},
    "f": {int, float, str},
    "c": {int, float, str},
}
_REALS: Final = {"complex64": DTYPES["float32"], "complex128": DTYPES["float64"]}

Array = np.ndarray[Any, Any]


def describes_tensor(value: dict[str, Any]) -> bool:
    return value.keys() - {"shape"} in ({"dtype", "data"}, {"dtype", "base64"})


def read_tensor(value: dict[str, Any], where: str, limits: Limits) -> Any:
    """Return the tensor of an object that `describes_tensor`. Raises WireError (BAD_INPUT, TOO_LARGE)."""
    name = value["dtype"]
    element = WIRE_DTYPES.get(name.encode("utf-8", "replace")) if isinstance(name, str) else None
    if element is None:
        known = ", ".join((*DTYPES, BFLOAT16))
        told = repr(name)[:80] if isinstance(name, str) else f"that is a {type(name).__name__}"
        raise WireError(reasons.BAD_INPUT, f"{where}: there is no dtype {told}; use one of {known}")
    try:
        if "base64" in value:
            array = _of_bytes(base64.b64decode(value["base64"], validate=True), name, element)
            shape: tuple[int, ...] = array.shape
        else:
            flat, shape = flattened(value["data"], limits.max_rank + (name in _REALS))
            if len(flat) * element.itemsize > limits.max_tensor_bytes * (1 + (name in _REALS)):
                raise too_large(
                    f"{where}: a tensor of {len(flat)} numbers", limits.max_tensor_bytes, "max_tensor_bytes"
                )
            array = elements(flat, name)
            shape = _without_pairs(shape, flat) if name in _REALS and "shape" not in value else shape
        array = array.reshape(_checked(value["shape"]) if "shape" in value else shape)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:  # the last by telling of what is deep
        raise WireError(reasons.BAD_INPUT, f"{where}: not a tensor of {name}: {error}") from error
    return Bfloat16(array) if name == BFLOAT16 else array


def show_tensor(tensor: Any) -> dict[str, Any]:
    name, array = named(tensor)
    shown: dict[str, Any] = {"dtype": name, "shape": list(array.shape)}
    if array.size > MOST_LISTED:
        return shown | {"base64": base64.b64encode(array.tobytes()).decode("ascii")}
    if name == BFLOAT16:
        array = Bfloat16(array).float32()
    elif name in _REALS:
        array = np.stack([array.real, array.imag], axis=-1)
    data = array.tolist()
    return shown | {"data": data if array.dtype.kind != "f" or np.isfinite(array).all() else _in_text(data)}


def flattened(data: Any, most: int) -> tuple[list[Any], tuple[int, ...]]:
    """The elements of lists in lists of one length at each level, and their shape. Raises ValueError for others."""
    level: list[Any] = [data]
    shape: list[int] = []
    while level and type(level[0]) is list:
        if len(shape) == most:
            raise too_large("the rank of a tensor", most, "max_rank")
        if {*map(type, level)} != {list} or len({*map(len, level)}) > 1:
            raise ValueError("its rows differ in length")
        shape.append(len(level[0]))
        level = list(chain.from_iterable(level))
    return level, tuple(shape)


def elements(flat: list[Any], name: str) -> Array:
    """A flat array of numbers, which are pairs for a complex dtype; of bfloat16 its bits.

    Raises ValueError or OverflowError for what a tensor of this dtype cannot hold.
    """
    dtype = DTYPES.get(name, DTYPES["float32"])
    kinds = {*map(type, flat)}
    strange = kinds - _TAKEN[dtype.kind]
    if strange:
        raise ValueError(f"{next(each for each in flat if type(each) in strange)!r:.80} is none of its elements")
    if dtype.kind == "b":
        return np.array(flat, dtype)
    if dtype.kind in "iu":
        return np.array([_whole(each) for each in flat] if float in kinds else flat, dtype)
    wide = np.array([_number(each) for each in flat] if str in kinds else flat, np.float64)
    with np.errstate(over="ignore"):
        made = wide.astype(_REALS.get(name, dtype))
    bits = _rounded(made) if name == BFLOAT16 else None
    if (np.isinf(made if bits is None else Bfloat16(bits).float32()) & np.isfinite(wide)).any():
        raise ValueError("a number is out of range")
    if bits is not None:
        return bits
    if name in _REALS and len(flat) % 2:
        raise ValueError(_PAIRS)
    return made.view(dtype) if name in _REALS else made


def _of_bytes(data: bytes, name: str, element: np.dtype[Any]) -> Array:
    array = np.frombuffer(data, element)
    if name == "bool" and data and array.view(np.uint8).max() > 1:
        raise ValueError("its elements are neither 0 nor 1")
    return array


def _checked(shape: Any) -> list[int]:
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"{shape!r:.80} is not a shape")
    return shape


def _without_pairs(shape: tuple[int, ...], flat: list[Any]) -> tuple[int, ...]:
    if flat and shape[-1:] != (2,):
        raise ValueError(_PAIRS)
    return shape[:-1] if flat else shape


def _whole(number: float) -> int:
    if type(number) is float and not number.is_integer():
        raise ValueError(f"{number!r} is not a whole number")
    return int(number)


def _number(text: str | float) -> float:
    if not isinstance(text, str):
        return text
    if text not in _FROM_TEXT:
        raise ValueError(f"{text!r:.80} is a text, not a number")
    return _FROM_TEXT[text]


def _rounded(floats: Array) -> Array:
    """Of float32 the bits as bfloat16: to the nearest, ties to even."""
    bits = floats.view("<u4")
    rounded: Array = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    return rounded


def _in_text(data: Any) -> Any:
    """The elements with texts for the numbers that JSON lacks."""
    if isinstance(data, list):
        return [_in_text(each) for each in data]
    return data if data - data == 0 else NON_FINITE[str(data)]
