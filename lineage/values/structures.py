"""Values on their way out: from Python objects to the (branch, datum) pairs that fastavro writes without guessing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.lineage import reasons
from spillway.lineage.errors import WireError
from spillway.lineage.limits import too_large
from spillway.lineage.values import tensors
from spillway.lineage.values.plain import LONG_LEAST, LONG_MOST, PlainError, scalar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spillway.lineage.limits import Limits

Packed = dict[str, Any]

_TENSOR = "spillway.Tensor"
_BYTES = "spillway.Bytes"
_CONSTANTS: dict[Any, Packed] = {
    None: {"of": ("null", None)},
    True: {"of": ("boolean", True)},
    False: {"of": ("boolean", False)},
}


def pack_map(values: Mapping[str, Any], limits: Limits, left: list[int], depth: int = 0) -> Packed:
    """A map of values, ready for fastavro. `left[0]` counts down the values that the message may still hold.

    Raises WireError for a key that is no string, a value of a type that does not travel, anything over a limit.
    """
    if len(values) > limits.max_entries:
        raise too_large(f"a map of {len(values)} entries", limits.max_entries, "max_entries")
    _take(len(values), left, limits)
    most = limits.max_name_bytes
    packed = {}
    for name, value in values.items():
        if type(name) is not str:
            if not isinstance(name, str):
                raise WireError(reasons.NOT_ENCODABLE, f"a name must be a string, not {name!r:.80}")
            name = str.__str__(name)  # noqa: PLW2901 - what a subclass does with it is its own affair
        check_length("a name", name, most, "max_name_bytes")
        try:
            packed[name] = _pack(value, limits, left, depth)
        except WireError as error:
            raise error.within(name) from error
    return packed


def _pack(value: Any, limits: Limits, left: list[int], depth: int) -> Packed:
    kind = type(value)
    if kind is np.ndarray:
        return {"of": (_TENSOR, tensors.pack(value, limits))}
    if kind is float:
        return {"of": ("double", value)}
    if value is None or kind is bool:
        return _CONSTANTS[value]
    if kind is int:
        if not LONG_LEAST <= value <= LONG_MOST:
            raise WireError(reasons.NOT_ENCODABLE, "an int does not fit 64 bits")
        return {"of": ("long", value)}
    if kind is str:
        check_length("a string", value, limits.max_string_bytes, "max_string_bytes")
        return {"of": ("string", value)}
    return _pack_other(value, limits, left, depth)


def _pack_other(value: Any, limits: Limits, left: list[int], depth: int) -> Packed:
    if isinstance(value, (bytes, bytearray, memoryview)):
        if memoryview(value).nbytes > limits.max_string_bytes:
            raise too_large(
                f"a bytes value of {memoryview(value).nbytes} bytes", limits.max_string_bytes, "max_string_bytes"
            )
        return {"of": (_BYTES, {"data": bytes(value)})}
    if isinstance(value, (list, tuple, dict)):
        if depth == limits.max_depth:
            raise too_large("the message's nesting", limits.max_depth, "max_depth")
        if isinstance(value, dict):
            return {"of": ("map", pack_map(value, limits, left, depth + 1))}
        return {"of": ("array", _pack_items(value, limits, left, depth + 1))}
    if tensors.is_tensor(value):
        return {"of": (_TENSOR, tensors.pack(value, limits))}
    return _pack_scalar(value, limits, left, depth)


def _pack_items(items: Sequence[Any], limits: Limits, left: list[int], depth: int) -> list[Packed]:
    _take(len(items), left, limits)
    return [_pack(item, limits, left, depth) for item in items]


def _pack_scalar(value: Any, limits: Limits, left: list[int], depth: int) -> Packed:
    try:
        plain = scalar(value)
    except PlainError as error:
        raise WireError(reasons.NOT_ENCODABLE, str(error)) from error
    return _pack(plain, limits, left, depth)


def _take(count: int, left: list[int], limits: Limits) -> None:
    left[0] -= count
    if left[0] < 0:
        raise too_large("the number of values in the message", limits.max_values, "max_values")


def check_length(what: str, text: str, most: int, limit: str = "") -> None:
    """Raise WireError for a text that is not UTF-8, or of more than `most` bytes."""
    size = len(text)
    try:
        fits = size <= most and (text.isascii() or len(text.encode()) <= most)
    except UnicodeEncodeError as error:
        raise WireError(reasons.NOT_ENCODABLE, f"{what} is not UTF-8: {text!a:.80}: {error.reason}") from error
    if not fits:
        raise too_large(f"{what} of {size} characters", most, limit)
