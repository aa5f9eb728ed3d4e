"""Reading the headers of a record whose header keys are not all UTF-8.

Kafka takes any bytes there; librdkafka's Python client raises when it is asked for such headers. So the bytes of that
record's batch are fetched once more, and read in plain Python: a key that is not UTF-8 stays `bytes`, for the stage to
dead-letter. It happens once for each such record, and takes some milliseconds.
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import CorruptRecordException, KafkaError, LeaderNotAvailableError, for_code
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.util import decode_varint

from lineage.errors import BrokerError

if TYPE_CHECKING:
    from producers.connection import ClientSettings

Pairs = tuple[tuple[str | bytes, bytes | None], ...]

_WITHIN = 10.0  # seconds
_AGAIN = 0.1
_REQUEST_MS = 3_000
_WAIT_MS = 250
_BYTES = 1 << 20  # a batch that is larger comes whole all the same
_BATCH_START = struct.Struct(">qi")  # base offset, length of what follows


def read_leniently(settings: ClientSettings, topic: str, partition: int, offset: int) -> Pairs:
    """The headers of the record at `offset`. Raises `BrokerError`, also where the log does not have it any more."""
    try:
        return asyncio.run(asyncio.wait_for(_read(settings, TopicPartition(topic, partition), offset), _WITHIN))
    except TimeoutError as error:
        raise BrokerError(f"{topic}[{partition}] offset {offset}: cannot be read within {_WITHIN:g} s") from error


async def _read(settings: ClientSettings, tp: TopicPartition, offset: int) -> Pairs:
    client = AIOKafkaClient(**settings.aiokafka(), request_timeout_ms=_REQUEST_MS)
    try:
        while True:
            try:
                found = headers_at(await _fetched(client, tp, offset), offset)
                if found is not None:
                    return found
            except KafkaError as error:
                if not error.retriable:
                    raise BrokerError(f"{tp} offset {offset}: {error!r}") from error
            await asyncio.sleep(_AGAIN)
    finally:
        await client.close()


async def _fetched(client: AIOKafkaClient, tp: TopicPartition, offset: int) -> bytes:
    await client.bootstrap()
    await client.add_topic(tp.topic)
    node = client.cluster.leader_for_partition(tp)
    if node is None or node < 0:
        raise LeaderNotAvailableError
    wanted = [(tp.topic, [(tp.partition, offset, _BYTES)])]
    answer = await client.send(node, FetchRequest(_WAIT_MS, 1, _BYTES, 0, wanted))
    ((_, ((_, error_code, *_, fetched),)),) = answer.topics
    if error_code:
        raise for_code(error_code)
    return bytes(fetched or b"")


def headers_at(fetched: bytes, offset: int) -> Pairs | None:
    """The headers of the record at `offset` in the bytes of a fetch; None where it is not among them."""
    at = 0
    while at + _BATCH_START.size < len(fetched):
        _base, length = _BATCH_START.unpack_from(fetched, at)
        end = at + _BATCH_START.size + length
        if end > len(fetched) or length <= 0:
            break  # the broker cuts the last batch of a fetch where its limit falls
        batch = _LenientBatch(fetched[at:end])
        if batch.next_offset > offset:
            return dict(batch).get(offset)
        at = end
    return None


class _LenientBatch(_DefaultRecordBatchPy):  # type: ignore[misc]
    """aiokafka's pure-Python batch, but of each record it gives offset and headers, keys that are no text as bytes."""

    def _read_msg(self) -> tuple[int, Pairs]:
        buffer: bytearray = self._buffer
        pos: int = self._pos  # type: ignore[has-type]
        _length, pos = decode_varint(buffer, pos)
        pos += 1  # attributes, unused
        _timestamp, pos = decode_varint(buffer, pos)
        offset_delta, pos = decode_varint(buffer, pos)
        for _ in ("key", "value"):
            _passed, pos = _nullable_bytes(buffer, pos)
        count, pos = decode_varint(buffer, pos)
        headers = []
        for _ in range(count):
            name, pos = _nullable_bytes(buffer, pos)
            content, pos = _nullable_bytes(buffer, pos)
            headers.append((_text_if_possible(name or b""), content))
        self._pos = pos
        return self.base_offset + offset_delta, tuple(headers)


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
