"""Draining what aiokafka has fetched, in lists, without ever being stopped by a record that it cannot parse.

Runs on the consumer's own thread and loop. It replaces `Fetcher.fetched_records`, which loses the records of the
partitions it has already drained when the next partition raises.
"""
# ruff: noqa: SLF001 - faust and aiokafka have no public way to do what this replaces; their versions are pinned

from __future__ import annotations

import asyncio
import logging
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import FetchResult
from aiokafka.errors import ConsumerStoppedError, CorruptRecordException, OffsetOutOfRangeError
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.util import decode_varint
from aiokafka.structs import ConsumerRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiokafka import AIOKafkaConsumer

log = logging.getLogger(__name__)


# Reading a fetched record batch leniently: what to do with a batch that aiokafka refuses.
#
# aiokafka decodes header keys as UTF-8 and raises in the middle of a batch when one is not; read again, the batch
# raises again. Kafka itself takes any bytes there, so one such record would stop its reader for good. Here the same
# bytes are read once more in plain Python: a header key that is not UTF-8 stays `bytes`, for the stage to dead-letter.

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


Drained = dict[TopicPartition, list["ConsumerRecord"]]


class KeepingClient:
    """The consumer's network client, remembering the bytes of the last fetch of each partition.

    They are needed only when a batch in them cannot be parsed; until its next fetch, each partition keeps one.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self.fetched: dict[TopicPartition, bytes] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def send(self, node_id: int, request: Any, **options: Any) -> Any:
        response = await self._client.send(node_id, request, **options)
        if type(request).__name__.startswith("FetchRequest"):
            for topic, partitions in response.topics:
                for partition, *rest in partitions:
                    self.fetched[TopicPartition(topic, partition)] = rest[-1]
        return response


class Drain:
    """Takes whatever is fetched for the assigned partitions, waiting up to a timeout for the first of it."""

    def __init__(
        self, consumer: AIOKafkaConsumer, max_records: int, out_of_range: Callable[[TopicPartition, int], object]
    ) -> None:
        """`out_of_range` hears of a partition whose log does not have the position, and seeks or stops it."""
        self._consumer = consumer
        self._fetcher = consumer._fetcher
        self._client = KeepingClient(self._fetcher._client)
        self._fetcher._client = self._client
        self._max_records = max_records
        self._out_of_range = out_of_range
        self._told: dict[TopicPartition, Any] = {}  # the errors that were told of last

    async def take(self, active: Callable[[], frozenset[TopicPartition]], within: float) -> Drained:
        """Return records by partition; empty after `within` seconds without any, or when nothing is active.

        `active` is asked again each time before anything is taken, with no await in between: a caller that closes the
        flow can rely on it that nothing moves a position afterwards.
        """
        fetcher = self._fetcher
        if self._consumer._closed or fetcher._closed:
            raise ConsumerStoppedError
        with fetcher._subscriptions.fetch_context():
            drained = self._take_ready(active())
            if drained or not active():
                return drained
            waiter = fetcher._create_fetch_waiter()
            done, _ = await asyncio.wait([waiter], timeout=within)
            if not done:
                waiter.cancel()
                return {}
            waiter.result()  # a fatal error of the coordinator surfaces here
            return self._take_ready(active())

    def _take_ready(self, active: frozenset[TopicPartition]) -> Drained:
        fetcher = self._fetcher
        if fetcher._subscriptions.reassignment_in_progress:
            return {}
        drained: Drained = {}
        room = self._max_records
        for tp in list(fetcher._records):
            if tp not in active:
                if not fetcher._subscriptions.is_assigned(tp):
                    del fetcher._records[tp]
                continue
            records = self._take_partition(tp, room)
            if records:
                drained[tp] = records
                room -= len(records)
                if room <= 0:
                    break
        return drained

    def _take_partition(self, tp: TopicPartition, room: int) -> list[ConsumerRecord]:
        fetcher = self._fetcher
        fetched = fetcher._records[tp]
        if type(fetched) is not FetchResult:
            if isinstance(fetched._error, OffsetOutOfRangeError):
                self._tell(tp, fetched)
                return []
            self._release(tp)
            fetched.check_raise()
        try:
            records: list[ConsumerRecord] = fetched.getall(room)
        except (CorruptRecordException, UnicodeDecodeError) as error:
            self._release(tp)
            return self._salvage(tp, fetched, error)
        if not fetched.has_more():
            self._release(tp)
        return records

    def _tell(self, tp: TopicPartition, failed: Any) -> None:
        """Tell of a position out of range, once; what was fetched stays, so that nothing is fetched before a seek."""
        if self._told.get(tp) is not failed:
            self._told[tp] = failed
            self._out_of_range(tp, failed._error.args[0][tp])

    def _release(self, tp: TopicPartition) -> None:
        del self._fetcher._records[tp]
        self._fetcher._notify(self._fetcher._wait_consume_future)

    def _salvage(self, tp: TopicPartition, fetched: FetchResult, error: Exception) -> list[ConsumerRecord]:
        state = fetched._assignment.state_value(tp)
        raw = self._client.fetched.get(tp)
        if state is None or raw is None or "Invalid CRC" in str(error):
            log.error("%s: a fetch arrived damaged and is read again: %s", tp, error)
            return []
        records, next_offset = salvage(tp, bytes(raw), state.position)
        log.warning("%s: offsets %d to %d were read leniently: %s", tp, state.position, next_offset - 1, error)
        state.consumed_to(next_offset)
        return records
