"""Reading a fetched record batch leniently: what to do with a batch that aiokafka refuses.

aiokafka decodes header keys as UTF-8 and raises in the middle of a batch when one is not; read again, the batch raises
again. Kafka itself takes any bytes there, so one such record would stop its reader for good. Here the same bytes are
read once more in plain Python: a header key that is not UTF-8 stays `bytes`, for the stage to dead-letter.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import _DefaultRecordBatchPy  # the C twin hides its buffer
from aiokafka.record.util import decode_varint
from aiokafka.structs import ConsumerRecord

if TYPE_CHECKING:
    from aiokafka import TopicPartition

_BATCH_START = struct.Struct(">qi")  # base offset, length of what follows
_MAGIC_AT = 16
_MAGIC_V2 = 2


class Salvaged(NamedTuple):
    """What could be read of one fetch of one partition, and where the next fetch goes on."""

    records: list[ConsumerRecord]
    next_offset: int


def salvage(tp: TopicPartition, fetched: bytes, position: int) -> Salvaged:
    """Read every record at or after `position` from the bytes of one fetch.

    A batch that cannot be read even so becomes one record at its last offset whose value is the batch itself, without
    headers: nothing that Kafka holds stops a reader, and nothing goes without a trace.
    """
    records: list[ConsumerRecord] = []
    next_offset = position
    at = 0
    while at + _BATCH_START.size < len(fetched):
        _base, length = _BATCH_START.unpack_from(fetched, at)
        end = at + _BATCH_START.size + length
        if end > len(fetched) or length <= 0:
            break  # the broker cuts the last batch of a fetch where its limit falls
        found, next_offset = _read_batch(tp, bytes(fetched[at:end]), next_offset)
        records += [record for record in found if record.offset >= position]
        at = end
    return Salvaged(records, next_offset)


def _read_batch(tp: TopicPartition, raw: bytes, position: int) -> Salvaged:
    if raw[_MAGIC_AT] < _MAGIC_V2:
        raise CorruptRecordException(f"{tp}: message format {raw[_MAGIC_AT]} has no headers, and cannot be salvaged")
    batch = _LenientBatch(raw)
    after = max(position, batch.next_offset)
    if batch.is_control_batch:
        return Salvaged([], after)
    try:
        found = [_consumer_record(tp, record) for record in batch]
    except (CorruptRecordException, ValueError, IndexError, EOFError, OSError):
        found = [_record(tp, batch.next_offset - 1, batch.max_timestamp, batch.timestamp_type, None, raw, ())]
    return Salvaged(found, after)


class _Raw(NamedTuple):
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str | bytes, bytes | None], ...]


class _LenientBatch(_DefaultRecordBatchPy):  # type: ignore[misc]
    """aiokafka's pure-Python batch, but a header key that is not UTF-8 is kept as bytes."""

    def _read_msg(self) -> _Raw:
        buffer: bytearray = self._buffer
        pos: int = self._pos  # type: ignore[has-type]
        _length, pos = decode_varint(buffer, pos)
        pos += 1  # attributes, unused
        timestamp_delta, pos = decode_varint(buffer, pos)
        offset_delta, pos = decode_varint(buffer, pos)
        key, pos = _nullable_bytes(buffer, pos)
        value, pos = _nullable_bytes(buffer, pos)
        count, pos = decode_varint(buffer, pos)
        headers = []
        for _ in range(count):
            name, pos = _nullable_bytes(buffer, pos)
            content, pos = _nullable_bytes(buffer, pos)
            headers.append((_text_if_possible(name or b""), content))
        self._pos = pos
        appended = self.timestamp_type == self.LOG_APPEND_TIME
        timestamp = self.max_timestamp if appended else self.first_timestamp + timestamp_delta
        return _Raw(self.base_offset + offset_delta, timestamp, self.timestamp_type, key, value, tuple(headers))


def _nullable_bytes(buffer: bytearray, pos: int) -> tuple[bytes | None, int]:
    size, pos = decode_varint(buffer, pos)
    if size < 0:
        return None, pos
    if pos + size > len(buffer):
        raise CorruptRecordException(f"A field of {size} bytes runs past the end of its batch")
    return bytes(buffer[pos : pos + size]), pos + size


def _text_if_possible(name: bytes) -> str | bytes:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name


def _consumer_record(tp: TopicPartition, raw: _Raw) -> ConsumerRecord:
    return _record(tp, raw.offset, raw.timestamp, raw.timestamp_type, raw.key, raw.value, raw.headers)


def _record(
    tp: TopicPartition,
    offset: int,
    timestamp: int,
    timestamp_type: int,
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[str | bytes, bytes | None], ...],
) -> ConsumerRecord:
    return ConsumerRecord(
        tp.topic,
        tp.partition,
        offset,
        timestamp,
        timestamp_type,
        key,
        value,
        None,
        len(key) if key is not None else -1,
        len(value) if value is not None else -1,
        headers,
    )
