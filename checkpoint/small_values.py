"""A state's small values as Avro values (`spillway.Value`), and back, without loss.

What Avro has travels as it is: None, booleans, 64-bit integers, floats, strings, bytes, lists, mappings with strings
for keys. The rest is wrapped in a mapping with the one key `~`: tuples, larger integers (numpy's generators have them
in their state), mappings with other keys.
"""

from __future__ import annotations

from typing import Any, Final

from spillway.lineage.errors import CheckpointError

MAX_SMALL_BYTES: Final = 64 << 10
"""Of all small values of a state together: they stand in every version's contents, changed or not."""
MAX_DEPTH: Final = 6  # wrapped ones take up to three levels of the wire's 16 each; states are flattened above
_WRAP: Final = "~"
_TUPLE, _INTEGER, _PAIRS = "tuple", "int", "pairs"
_LONG_LEAST, _LONG_MOST = -(1 << 63), (1 << 63) - 1
_ITEM_BYTES: Final = 8


class UnfitError(Exception):
    """A value that no message can hold; the text says what to do. Its caller names the entry."""


def pack(value: Any, depth: int = 0) -> tuple[Any, int]:
    """The Avro value, a copy, and about how many bytes it takes. Raises UnfitError."""
    if depth > MAX_DEPTH:
        raise UnfitError(f"it is nested more than {MAX_DEPTH} deep (or contains itself): flatten it")
    if isinstance(value, (list, tuple)):
        return _pack_items(value, depth)
    if isinstance(value, dict):
        return _pack_map(value, depth)
    packed = _pack_plain(value)
    return packed, _ITEM_BYTES + (len(packed) if isinstance(packed, (str, bytes, dict)) else 0)


def _pack_plain(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        return float(value)
    if isinstance(value, int):
        fits = _LONG_LEAST <= value <= _LONG_MOST
        return int(value) if fits else {_WRAP: [_INTEGER, hex(value)]}
    if isinstance(value, str):
        if not value.isascii() and value != value.encode("utf-8", "replace").decode():
            raise UnfitError("the text has unpaired surrogates: encode it to bytes")
        return str.__str__(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise UnfitError(
        f"a {type(value).__module__}.{type(value).__qualname__} cannot be encoded: keep tensors, numpy arrays, None, "
        "bool, int, float, str, bytes, and lists, tuples and mappings of these"
    )


def unpack(value: Any) -> Any:
    """The value that `pack` was given. Raises CheckpointError for what it does not make."""
    if isinstance(value, list):
        return [unpack(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _WRAP not in value:
        return {key: unpack(item) for key, item in value.items()}
    wrapped = value[_WRAP]
    try:
        kind, inner = wrapped
        if kind == _TUPLE:
            return tuple(unpack(item) for item in inner)
        if kind == _INTEGER:
            return int(inner, 16)
        if kind == _PAIRS:
            return {unpack(key): unpack(item) for key, item in inner}
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"a small value of a state is damaged: {value!r:.80}") from error
    raise CheckpointError(f"a small value of a state was written by another version of Spillway: {value!r:.80}")


def _pack_items(items: list[Any] | tuple[Any, ...], depth: int) -> tuple[Any, int]:
    if hasattr(items, "_fields"):
        raise UnfitError("a named tuple would be restored as a plain tuple: use a mapping")
    packed, size = [], _ITEM_BYTES
    for item in items:
        one, bytes_of_it = pack(item, depth + 1)
        packed.append(one)
        size += bytes_of_it
    return (packed if isinstance(items, list) else {_WRAP: [_TUPLE, packed]}), size


def _pack_map(items: dict[Any, Any], depth: int) -> tuple[Any, int]:
    pairs, size = [], _ITEM_BYTES
    for key, item in items.items():
        if not isinstance(key, (str, int, float, bytes, tuple, type(None))):
            raise UnfitError(f"a {type(key).__qualname__} cannot be a key: use a text or a number")
        (one, key_bytes), (other, item_bytes) = pack(key, depth + 1), pack(item, depth + 1)
        pairs.append([one, other])
        size += key_bytes + item_bytes
    if all(type(key) is str and key != _WRAP for key in items):
        return dict(pairs), size
    return {_WRAP: [_PAIRS, pairs]}, size
