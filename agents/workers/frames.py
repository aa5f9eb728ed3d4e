"""The protocol between a stage's front and its model workers: frames over a stream (docs/workers.md).

    frame  = u32 length of the header, little-endian | header | tensors
    header = a msgpack array of two: a list with [dtype, shape] of each tensor that follows, and a map with "kind" and
             the kind's own fields
    tensor = its elements, little-endian, in C order, without padding

A value in a header is msgpack's null, bool, int (64 bits), float, string, bytes, array or map with string keys; a
tensor is the extension type 1 with its index as u32. Sizes are checked before anything is allocated: a header by its
length and its number of values, tensors by their dtypes and shapes, all of them together. This module needs numpy and
msgpack alone, so that a worker can have an interpreter of its own; it loads `spillway.lineage.values.plain` by its path
there.
"""

from __future__ import annotations

import importlib.util
import math
import struct
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgpack
import numpy as np


def load_by_path(name: str, path: str) -> Any:
    """Import a module of Spillway's, `path` from `spillway/`, in an interpreter that does not have Spillway."""
    spec: Any = importlib.util.spec_from_file_location(name, Path(__file__).parents[2] / path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


try:
    from spillway.lineage.values import plain
except ModuleNotFoundError:
    plain = load_by_path("plain", "lineage/values/plain.py")

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PROTOCOL: Final = 1  # said in Hello; a front and a worker that say different ones do not work together

HELLO: Final = "hello"  # worker: protocol, pid, model, version, signature
REFUSED: Final = "refused"  # front: reason; the connection ends
BATCH: Final = "batch"  # front: id, queries; singly: answer each query by itself, in order
ANSWER: Final = "answer"  # worker: id, first, results, seconds
DRAIN: Final = "drain"  # worker: give me no more batches; it serves until Bye
BYE: Final = "bye"  # front: end
PING: Final = "ping"  # either; answered by PONG
PONG: Final = "pong"
FAILED: Final = "failed"  # worker, instead of Hello: the model could not be loaded; text

HEADER_BYTES: Final = 512 << 20
TENSOR_BYTES: Final = 1 << 30  # of all tensors of a frame
MOST_TENSORS: Final = 65_536
MOST_DIMENSIONS: Final = 32
MOST_VALUES: Final = 1 << 20  # in a header, keys included: a byte of it can become 80 in memory
_LENGTH: Final = struct.Struct("<I")
_TENSOR: Final = 1
_TWO: Final = msgpack.Packer().pack_array_header(2)
DTYPES: Final[dict[str, np.dtype[Any]]] = {**plain.DTYPES, plain.BFLOAT16: plain.BITS}


def _widths(*ranges: tuple[int, int, int]) -> bytes:
    """For each byte that a value may begin with, a number; 0 where none is given."""
    return bytes(next((width for first, last, width in ranges if first <= tag <= last), 0) for tag in range(256))


# By the first byte of a msgpack value: the bytes that always follow it (but a length), the bytes of its length, and how
# many values each of that length stands for (0: bytes).
_FOLLOW: Final = _widths(
    (0xC7, 0xC9, 1), (0xCA, 0xCA, 4), (0xCB, 0xCB, 8), (0xCC, 0xCC, 1), (0xCD, 0xCD, 2), (0xCE, 0xCE, 4),
    (0xCF, 0xCF, 8), (0xD0, 0xD0, 1), (0xD1, 0xD1, 2), (0xD2, 0xD2, 4), (0xD3, 0xD3, 8), (0xD4, 0xD4, 2),
    (0xD5, 0xD5, 3), (0xD6, 0xD6, 5), (0xD7, 0xD7, 9), (0xD8, 0xD8, 17),
    *((0xA0 + size, 0xA0 + size, size) for size in range(32)),
)  # fmt: skip
_SIZED: Final = _widths(
    (0xC4, 0xC4, 1), (0xC5, 0xC5, 2), (0xC6, 0xC6, 4), (0xC7, 0xC7, 1), (0xC8, 0xC8, 2), (0xC9, 0xC9, 4),
    (0xD9, 0xD9, 1), (0xDA, 0xDA, 2), (0xDB, 0xDB, 4), (0xDC, 0xDC, 2), (0xDD, 0xDD, 4), (0xDE, 0xDE, 2),
    (0xDF, 0xDF, 4),
)  # fmt: skip
_EACH: Final = _widths((0x80, 0x8F, 2), (0x90, 0x9F, 1), (0xDC, 0xDD, 1), (0xDE, 0xDF, 2))


class FrameError(Exception):
    """Bytes that are no frame, or a value that no frame can hold. The connection is of no use any more."""


def encode(header: dict[str, Any]) -> list[bytes | memoryview]:
    """The buffers of a frame, to be written one after the other. Raises FrameError for what cannot travel.

    Tensors are not copied where they are contiguous: they must not change until the buffers are written.
    """
    tensors: list[np.ndarray[Any, Any]] = []
    shapes: list[list[Any]] = []
    size = 0

    def other(value: Any) -> Any:
        nonlocal size
        if not plain.is_tensor(value):
            value = plain.scalar(value)
            if not isinstance(value, np.ndarray):
                return value
        name, array = plain.tensor(value)
        if array.ndim > MOST_DIMENSIONS:
            raise FrameError(f"a tensor of {array.ndim} dimensions is over the limit of {MOST_DIMENSIONS}")
        size += (own := _bytes_of(DTYPES[name], array.shape))
        if size > TENSOR_BYTES:
            what = f"a tensor of shape {array.shape} is" if own > TENSOR_BYTES else "the tensors of a frame are"
            raise FrameError(f"{what} over the limit of {TENSOR_BYTES} bytes")
        shapes.append([name, list(array.shape)])
        tensors.append(np.ascontiguousarray(array, DTYPES[name]))
        return msgpack.ExtType(_TENSOR, _LENGTH.pack(len(tensors) - 1))

    try:
        body = msgpack.packb(header, default=other)
    except (plain.PlainError, ValueError, OverflowError, TypeError, RecursionError) as error:
        raise FrameError(f"a value cannot be sent between a stage and its worker: {error}") from error
    packed = _TWO + msgpack.packb(shapes) + body
    if len(packed) > HEADER_BYTES:
        raise FrameError(f"a header of {len(packed)} bytes is over the limit of {HEADER_BYTES}")
    check_values(packed)
    if len(tensors) > MOST_TENSORS:
        raise FrameError(f"{len(tensors)} tensors are over the limit of {MOST_TENSORS}")
    buffers: list[bytes | memoryview] = [_LENGTH.pack(len(packed)) + packed]
    buffers += [memoryview(tensor.data).cast("B") for tensor in tensors if tensor.nbytes]
    return buffers


def check_values(packed: bytes | bytearray) -> None:
    """Raise FrameError for msgpack of more than `MOST_VALUES` values, without making any of them.

    None has less than a byte, so only what has more bytes than that is looked through.
    """
    if len(packed) <= MOST_VALUES:
        return
    at, left, owed = 0, MOST_VALUES, 1
    end = len(packed)
    while owed and at < end:
        tag = packed[at]
        sized, each, follow = _SIZED[tag], _EACH[tag], _FOLLOW[tag]
        length = int.from_bytes(packed[at + 1 : at + 1 + sized], "big") if sized else tag & 0x0F
        at += 1 + sized + follow
        owed -= 1
        left -= 1
        if each:
            owed += length * each
        elif sized:
            at += length
        if owed > left:
            raise FrameError(f"the values of a header are over the limit of {MOST_VALUES}")


class FrameReader:
    """Takes a stream apart. Put what is received into `wanted()`, say so by `received`, and take the `frames`.

    Tensors are received into the arrays that they become: these are writable, and nobody else's.
    """

    def __init__(self) -> None:
        self._frames: list[dict[str, Any]] = []
        self._pending: deque[memoryview] = deque()
        self._filled = 0  # bytes of the first of these
        self._length = bytearray(_LENGTH.size)
        self._header: bytearray | None = None
        self._fields: dict[str, Any] | None = None
        self._expect_length()

    def wanted(self) -> memoryview:
        """Where the next bytes of the stream belong; never empty."""
        return self._pending[0][self._filled :]

    def received(self, count: int) -> None:
        """Note that `count` bytes were put into `wanted()`. Raises FrameError for what is no frame."""
        self._filled += count
        if self._filled == len(self._pending[0]):
            self._pending.popleft()
            self._filled = 0
            if not self._pending:
                self._next()

    def frames(self) -> Iterator[dict[str, Any]]:
        """The frames that are complete, each once: their fields, with arrays in the places of tensors."""
        while self._frames:
            yield self._frames.pop(0)

    def _expect_length(self) -> None:
        self._length, self._header, self._fields = bytearray(_LENGTH.size), None, None
        self._fill(self._length)

    def _fill(self, *buffers: Any) -> None:
        self._pending = deque(memoryview(buffer).cast("B") for buffer in buffers)
        self._filled = 0

    def _next(self) -> None:
        if self._header is None:
            (length,) = _LENGTH.unpack(self._length)
            if not 0 < length <= HEADER_BYTES:
                raise FrameError(f"a header of {length} bytes; from 1 to {HEADER_BYTES} are allowed")
            self._header = bytearray(length)
            self._fill(self._header)
            return
        if self._fields is None:
            self._fields, arrays = _unpack(self._header)
            filled = [array for array in arrays if array.nbytes]
            if filled:
                self._fill(*filled)
                return
        self._frames.append(self._fields)
        self._expect_length()


def _unpack(header: bytearray) -> tuple[dict[str, Any], list[np.ndarray[Any, Any]]]:
    """The fields of a header, and the arrays in them, still to be filled."""
    arrays: list[np.ndarray[Any, Any]] = []
    values: list[Any] = []  # what stands for each

    def tensor(code: int, data: bytes) -> Any:
        if code != _TENSOR or len(data) != _LENGTH.size:
            raise FrameError(f"extension type {code} is unknown")
        (index,) = _LENGTH.unpack(data)
        if index >= len(values):
            raise FrameError(f"tensor {index} was not announced")
        return values[index]

    check_values(header)
    unpacker = msgpack.Unpacker(ext_hook=tensor, max_buffer_size=len(header), strict_map_key=False)
    unpacker.feed(header)
    try:
        if unpacker.read_array_header() != 2:  # noqa: PLR2004
            raise FrameError("a header must be an array of two")  # noqa: TRY301
        announced = unpacker.unpack()
        arrays += _allocated(announced)
        values += [
            plain.Bfloat16(array) if each[0] == plain.BFLOAT16 else array
            for each, array in zip(announced, arrays, strict=True)
        ]
        fields = unpacker.unpack()
    except FrameError:
        raise
    except Exception as error:  # whatever a peer sends ends its own connection alone
        raise FrameError(f"a header cannot be read: {error!r:.200}") from error
    if not isinstance(fields, dict) or not isinstance(fields.get("kind"), str) or unpacker.tell() != len(header):
        raise FrameError("a header must end with a map that has a 'kind'")
    return fields, arrays


def _allocated(announced: Any) -> list[np.ndarray[Any, Any]]:
    """Arrays for the tensors that a header announces, once all of them were found to be within the limits."""
    if not isinstance(announced, list) or len(announced) > MOST_TENSORS:
        raise FrameError(f"a header must begin with a list of at most {MOST_TENSORS} tensors")
    left, found = TENSOR_BYTES, []
    for each in announced:
        dtype, shape = _checked(each)
        left -= _bytes_of(dtype, shape)
        if left < 0:
            raise FrameError(f"the tensors of a frame are over the limit of {TENSOR_BYTES} bytes")
        found.append((dtype, shape))
    return [np.empty(shape, dtype) for dtype, shape in found]


def _bytes_of(dtype: np.dtype[Any], shape: Sequence[int]) -> int:
    """Return what a tensor counts for the limit: a size of zero counts as one, as numpy refuses what is too large."""
    return math.prod(size or 1 for size in shape) * dtype.itemsize


def _checked(announced: Any) -> tuple[np.dtype[Any], tuple[int, ...]]:
    if not (isinstance(announced, list) and len(announced) == 2 and isinstance(announced[1], list)):  # noqa: PLR2004
        raise FrameError("a tensor must be announced as [dtype, shape]")
    dtype, shape = DTYPES.get(announced[0]) if isinstance(announced[0], str) else None, announced[1]
    if dtype is None:
        raise FrameError(f"there is no dtype {announced[0]!r:.40}")
    if len(shape) > MOST_DIMENSIONS or not all(type(size) is int and 0 <= size <= TENSOR_BYTES for size in shape):
        raise FrameError(f"{shape!r:.80} is not a shape")
    return dtype, tuple(shape)
