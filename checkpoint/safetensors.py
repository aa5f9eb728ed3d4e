"""A state as a safetensors file, and back: eight bytes with the header's length, a JSON header, the tensors' bytes.

What the format has: named tensors, and texts under `__metadata__`. Names are those of `spillway.checkpoint.names`, so
any tool finds `model/layer.weight`. Small values, the order of entries and what was torch's stand in the metadata as
JSON; a file of another tool, without them, is read as a state of torch tensors, its names split at `/`. complex128 is
refused, as the format lacks it. Files are not trusted: lengths come first, and offsets must cover the data without
overlap.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from spillway.checkpoint import arrays, names
from spillway.checkpoint.state import MAX_ENTRIES
from spillway.lineage.errors import CheckpointError
from spillway.lineage.replication import NUMPY, SCALAR, TORCH, VALUE, Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_TAGS: Final = "bool:BOOL int8:I8 int16:I16 int32:I32 int64:I64 uint8:U8 uint16:U16 uint32:U32 uint64:U64"
_MORE_TAGS: Final = "float16:F16 bfloat16:BF16 float32:F32 float64:F64 complex64:C64"
DTYPES: Final[dict[str, str]] = dict(pair.split(":") for pair in f"{_TAGS} {_MORE_TAGS}".split())
_NUMPY: Final = {name: dtype for dtype, name in DTYPES.items()}
MAX_HEADER_BYTES: Final = 100_000_000  # the format's own limit
_METADATA: Final = "__metadata__"
_ENTRIES, _VALUES = "spillway.entries", "spillway.values"
_LENGTH: Final = struct.Struct("<Q")
_ALIGNED: Final = 8


def written(
    entries: Iterable[Entry],
    tensors: Iterable[arrays.Array],
    values: Mapping[str, Any],
    metadata: Mapping[str, str] | None = None,
) -> Iterator[bytes]:
    """The same of leaves: `tensors` of the entries that are some, `values` the small ones as Avro has them."""
    entries = tuple(entries)
    header: dict[str, Any] = {_METADATA: dict(metadata or {})}
    header[_METADATA][_ENTRIES] = json.dumps([[entry.name, entry.kind] for entry in entries])
    header[_METADATA][_VALUES] = json.dumps({name: _as_json(value) for name, value in values.items()})
    at = 0
    for entry in entries:
        if entry.kind == VALUE:
            continue
        dtype = DTYPES.get(entry.dtype)
        if dtype is None or entry.name == _METADATA:
            raise CheckpointError(
                f"safetensors cannot hold the entry {entry.name!r}, {entry.dtype}: convert or rename it"
            )
        size = arrays.nbytes(entry)
        header[entry.name] = {"dtype": dtype, "shape": list(entry.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    yield _LENGTH.pack(len(text)) + text
    for tensor in tensors:
        yield arrays.flat(tensor).tobytes()


class Leaves(NamedTuple):
    """What a file holds."""

    entries: list[Entry]
    tensors: list[arrays.Array]  # of the entries that are some, copies
    values: dict[str, Any]  # as Avro has them
    metadata: dict[str, str]


def read(data: bytes | memoryview, *, most: int = MAX_ENTRIES) -> Leaves:
    """The leaves in a file's bytes, of up to so many tensors. Raises CheckpointError."""
    header, body = _header(memoryview(data).cast("B"), most)
    metadata = header.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise _bad("its metadata values are not strings")
    stored = {name: _tensor(name, said, body) for name, said in header.items()}
    _covered([stored[name][1] for name in stored], len(body))
    try:
        order = json.loads(metadata.pop(_ENTRIES, "null"))
        values = {name: _of_json(value) for name, value in json.loads(metadata.pop(_VALUES, "{}")).items()}
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise _bad(f"Spillway's part of its metadata cannot be read ({str(error)[:100]})") from error
    if order is None:
        stored = {"/".join(map(names.of_key, name.split("/"))): found for name, found in stored.items()}
    entries, tensors = [], []
    for name, kind in _listed(order, stored, values):
        if kind == VALUE:
            entries.append(Entry(name, VALUE, "", ()))
            continue
        entry, (start, stop) = stored[name]
        entries.append(entry._replace(name=name, kind=kind))
        array = arrays.empty(entry)
        array.reshape(-1).view(np.uint8)[:] = np.frombuffer(body[start:stop], np.uint8)
        tensors.append(array)
    return Leaves(entries, tensors, values, metadata)


def _header(data: memoryview, most: int) -> tuple[dict[str, Any], memoryview]:
    if len(data) < _LENGTH.size:
        raise _bad("it ends before its header")
    (length,) = _LENGTH.unpack_from(data)
    if length > min(MAX_HEADER_BYTES, len(data) - _LENGTH.size):
        raise _bad(f"its header of {length} bytes goes past its end or over the limit of {MAX_HEADER_BYTES}")
    end = _LENGTH.size + length
    try:
        header = json.loads(bytes(data[_LENGTH.size : end]).decode())
    except (ValueError, RecursionError) as error:
        raise _bad(f"its header is not JSON ({str(error)[:100]})") from error
    if not isinstance(header, dict) or len(header) > most + 1:
        raise _bad(f"its header is not an object of at most {most} tensors")
    return header, data[end:]


def _tensor(name: str, said: Any, body: memoryview) -> tuple[Entry, tuple[int, int]]:
    try:
        dtype, shape, (start, stop) = _NUMPY[said["dtype"]], tuple(said["shape"]), said["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise _bad(f"the tensor {name!r:.80} has an unreadable description: {said!r:.80}") from error
    numbers = (*shape, start, stop)
    plausible = all(type(number) is int and number >= 0 for number in numbers) and len(shape) <= arrays.MAX_RANK
    if not plausible or math.prod(length or 1 for length in shape) > 1 << 59 or stop > len(body):
        raise _bad(f"the tensor {name!r:.80} has an impossible shape or offsets: {said!r:.80}")
    entry = Entry(name, TORCH, dtype, shape)
    if stop - start != arrays.nbytes(entry):
        raise _bad(f"the tensor {name!r:.80} has {stop - start} bytes: {said!r:.80}")
    return entry, (start, stop)


def _covered(places: list[tuple[int, int]], size: int) -> None:
    at = 0
    for start, stop in sorted(places):
        if start != at:
            raise _bad(f"its tensors overlap or leave a gap at byte {at}")
        at = stop
    if at != size:
        raise _bad(f"{size - at} bytes belong to none of its tensors")


def _listed(order: Any, stored: Mapping[str, Any], values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and kinds in their order; without Spillway's own list, all tensors as torch's."""
    if order is None:
        return [(name, TORCH) for name in stored]
    try:
        listed = [(str(name), str(kind)) for name, kind in order]
    except (TypeError, ValueError) as error:
        raise _bad("the list of its entries cannot be read") from error
    tensors = {name for name, kind in listed if kind in {TORCH, NUMPY, SCALAR}}
    small = {name for name, kind in listed if kind == VALUE}
    if len(listed) != len(tensors) + len(small) or tensors != stored.keys() or small != values.keys():
        raise _bad("the list of its entries does not match its tensors and values")
    return listed


def _as_json(value: Any) -> Any:
    """A packed small value as JSON: bytes and floats that it lacks are written out."""
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    if isinstance(value, dict):
        return {"map": {key: _as_json(item) for key, item in value.items()}}
    return value


def _of_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_of_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "bytes":
        return base64.b64decode(inner, validate=True)
    if kind == "float":
        return float.fromhex(inner)
    return {key: _of_json(item) for key, item in inner.items()}


def _bad(what: str) -> CheckpointError:
    return CheckpointError(f"this safetensors file cannot be read: {what}")
