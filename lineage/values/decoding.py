"""Decoding of messages that were written with our own schemas: one bounded pass over the bytes.

fastavro would copy every tensor, would follow a hostile nesting until the C stack ends, and believes any count. This
decoder reads the same bytes (a test compares the two) with every length checked before it is used, and hands out
tensors as views. Bytes of any other schema take the way of `spillway.lineage.values.resolution`.

The functions take a position and return what they read with the position after it. `left` is a list of one counter:
the values that the message may still hold.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from spillway.lineage import reasons
from spillway.lineage.errors import WireError
from spillway.lineage.limits import limit_of_text, too_large
from spillway.lineage.message import DROPPED, FAILED, PREDICTION, Outcome, OutcomeKind, Query, StageTiming
from spillway.lineage.values import tensors

if TYPE_CHECKING:
    from spillway.lineage.limits import Limits

# The branches of spillway.Value's union, as they stand on the wire (zigzag).
_NULL, _BOOLEAN, _LONG, _DOUBLE, _STRING, _BYTES, _TENSOR, _ARRAY, _MAP = range(0, 18, 2)
# A byte with one of these bits starts a varint that is negative or longer than itself.
_NOT_SMALL: Final = 0x81
_KINDS: Final[dict[int, OutcomeKind]] = {0: PREDICTION, 2: DROPPED, 4: FAILED}
_double = struct.Struct("<d").unpack_from
_durations = struct.Struct("<ddd").unpack_from
_VARINT_BITS: Final = 64


def read_long(buffer: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits. Raises IndexError where the bytes end before it does."""
    value = shift = 0
    while True:
        byte = buffer[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004  the bit that says that more follow
            break
        shift += 7
        if shift >= _VARINT_BITS:
            raise WireError(reasons.CORRUPT, "a number is longer than 64 bits")
    if value >> _VARINT_BITS:
        raise WireError(reasons.CORRUPT, "a number is longer than 64 bits")
    return (value >> 1) ^ -(value & 1), at


def read_length(buffer: bytes, at: int) -> tuple[int, int]:
    """The length of a string, of bytes or of data: not negative, and so many bytes are there."""
    size, at = read_long(buffer, at)
    if size < 0:
        raise WireError(reasons.CORRUPT, f"a length is negative, {size}")
    if at + size > len(buffer):
        raise WireError(reasons.CORRUPT, f"a length of {size} goes past the message's end")
    return size, at


def read_count(buffer: bytes, at: int) -> tuple[int, int]:
    """The count of a block of items or entries; a negative one is followed by the block's size, which is skipped."""
    count = buffer[at]
    if not count & _NOT_SMALL:
        return count >> 1, at + 1
    count, at = read_long(buffer, at)
    if count < 0:
        _, at = read_long(buffer, at)
        count = -count
    return count, at


class OwnDecoder:
    """Reads messages of our own schemas. Raises WireError, IndexError, struct.error and UnicodeDecodeError only.

    All but the first mean that the bytes end early or are no text; the caller says so in one WireError.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._max_entries = limits.max_entries
        self._max_name = limits.max_name_bytes
        self._max_string = limits.max_string_bytes
        self._max_values = limits.max_values

    def query(self, buffer: bytes, at: int) -> tuple[Query, int]:
        left = [self._max_values]
        inputs, at = self._map(buffer, at, 0, left)
        parameters, at = self._map(buffer, at, 0, left)
        timings, at = self._timings(buffer, at)
        if not buffer[at]:  # nearly always
            return Query(inputs, parameters, timings), at + 1
        flags, at = self._map(buffer, at, 0, left)
        return Query(inputs, parameters, timings, flags), at

    def outcome(self, buffer: bytes, at: int) -> tuple[Outcome, int]:
        kind = _KINDS.get(buffer[at])
        if kind is None:
            raise WireError(reasons.CORRUPT, "an outcome is of an unknown kind")
        left = [self._max_values]
        outputs, at = self._map(buffer, at + 1, 0, left)
        reason, at = self._text(buffer, at, self._max_name)
        text, at = self._text(buffer, at, self._max_string)
        stage, at = self._text(buffer, at, self._max_name)
        timings, at = self._timings(buffer, at)
        flags, at = self._map(buffer, at, 0, left)
        return Outcome(kind, outputs, reason, text, stage, timings, flags), at

    def _map(self, buffer: bytes, at: int, depth: int, left: list[int]) -> tuple[dict[str, Any], int]:
        entries: dict[str, Any] = {}
        total = 0
        while True:
            count = buffer[at]
            if count & _NOT_SMALL:
                count, at = read_count(buffer, at)
            else:
                count >>= 1
                at += 1
            if not count:
                return entries, at
            total += count
            if total > self._max_entries:
                raise too_large(f"a map of {total} entries", self._max_entries, "max_entries")
            left[0] -= count
            if left[0] < 0:
                raise too_large("the number of values in the message", self._max_values, "max_values")
            for _ in range(count):
                name, at = self._text(buffer, at, self._max_name)
                try:
                    entries[name], at = self._value(buffer, at, depth, left)
                except WireError as error:
                    raise error.within(name) from error

    def _text(self, buffer: bytes, at: int, most: int) -> tuple[str, int]:
        size = buffer[at]
        if size & _NOT_SMALL:
            size, at = read_length(buffer, at)
        else:
            size >>= 1
            at += 1
        if size > most:
            raise too_large(f"a text of {size} bytes", most, limit_of_text(most, self._limits))
        end = at + size
        if end > len(buffer):
            raise WireError(reasons.CORRUPT, f"a text of {size} bytes goes past the message's end")
        return buffer[at:end].decode(), end

    def _value(self, buffer: bytes, at: int, depth: int, left: list[int]) -> tuple[Any, int]:  # noqa: PLR0911
        branch = buffer[at]
        at += 1
        if branch == _TENSOR:
            return self._tensor(buffer, at)
        if branch == _DOUBLE:
            return _double(buffer, at)[0], at + 8
        if branch == _STRING:
            return self._text(buffer, at, self._max_string)
        if branch == _LONG:
            return read_long(buffer, at)
        if branch == _NULL:
            return None, at
        if branch in {_MAP, _ARRAY}:
            if depth == self._limits.max_depth:
                raise too_large("the message's nesting", depth, "max_depth")
            return (self._map if branch == _MAP else self._items)(buffer, at, depth + 1, left)
        return self._rare_value(branch, buffer, at)

    def _rare_value(self, branch: int, buffer: bytes, at: int) -> tuple[Any, int]:
        if branch == _BOOLEAN:
            if buffer[at] > 1:
                raise WireError(reasons.CORRUPT, "a boolean is neither 0 nor 1")
            return buffer[at] == 1, at + 1
        if branch == _BYTES:
            size, at = read_length(buffer, at)
            if size > self._max_string:
                raise too_large(f"a bytes value of {size} bytes", self._max_string, "max_string_bytes")
            return buffer[at : at + size], at + size
        raise WireError(reasons.CORRUPT, f"a value is of the unknown branch {branch}")

    def _items(self, buffer: bytes, at: int, depth: int, left: list[int]) -> tuple[list[Any], int]:
        items: list[Any] = []
        while True:
            count, at = read_count(buffer, at)
            if not count:
                return items, at
            left[0] -= count
            if left[0] < 0:
                raise too_large("the number of values in the message", self._max_values, "max_values")
            for _ in range(count):
                item, at = self._value(buffer, at, depth, left)
                items.append(item)

    def _tensor(self, buffer: bytes, at: int) -> tuple[Any, int]:
        size = buffer[at]
        if size & _NOT_SMALL:  # every dtype's name is shorter than 64 bytes, so its length takes one
            raise WireError(reasons.BAD_INPUT, "a tensor has an unknown dtype")
        end = at + 1 + (size >> 1)
        dtype = buffer[at + 1 : end]
        shape: list[int] = []
        at = end
        while True:
            count, at = read_count(buffer, at)
            if not count:
                break
            if len(shape) + count > self._limits.max_rank:
                raise too_large(f"a tensor of rank {len(shape) + count}", self._limits.max_rank, "max_rank")
            for _ in range(count):
                length, at = read_long(buffer, at)
                shape.append(length)
        size, at = read_length(buffer, at)
        return tensors.view(buffer, at, size, dtype, shape, self._limits), at + size

    def _timings(self, buffer: bytes, at: int) -> tuple[list[StageTiming], int]:
        timings: list[StageTiming] = []
        while True:
            count, at = read_count(buffer, at)
            if not count:
                return timings, at
            if len(timings) + count > self._limits.max_timings:
                raise too_large(f"{len(timings) + count} stage timings", self._limits.max_timings, "max_timings")
            for _ in range(count):
                stage, at = self._text(buffer, at, self._max_name)
                queued, waited, executed = _durations(buffer, at)
                batch, at = read_long(buffer, at + 24)
                model, at = self._text(buffer, at, self._max_name)
                version, at = self._text(buffer, at, self._max_name)
                arrived, at = read_long(buffer, at)
                timings.append(StageTiming(stage, queued, waited, executed, batch, model, version, arrived))
