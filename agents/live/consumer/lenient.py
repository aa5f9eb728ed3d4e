"""Reading the headers of records whose header keys are not all UTF-8.

Kafka takes any bytes there; librdkafka's Python client raises when it is asked for such headers. So the bytes from that
record on are fetched once more, a mebibyte or a batch of them, and read in plain Python: a key that is not UTF-8 stays
`bytes`, for the stage to dead-letter. It happens once for all such records of a fetch, and takes a tenth of a second.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from typing import TYPE_CHECKING

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import CorruptRecordException, KafkaError, LeaderNotAvailableError, OffsetOutOfRangeError, for_code
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.util import decode_varint

from spillway.lineage.errors import BrokerError

if TYPE_CHECKING:
    from spillway.producers.connection import ClientSettings

log = logging.getLogger(__name__)

Pairs = tuple[tuple[str | bytes, bytes | None], ...]

_WITHIN = 10.0  # seconds
_AGAIN = 0.1
_REQUEST_MS = 3_000
_WAIT_MS = 250
_BYTES = 1 << 20  # a batch that is larger comes whole all the same
_BATCH_START = struct.Struct(">qi")  # base offset, length of what follows


class LenientReader:
    """Reads the headers of one topic's strange records. For one thread, which it blocks."""

    def __init__(self, settings: ClientSettings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._read: dict[int, tuple[int, int, dict[int, Pairs]]] = {}  # by partition: from, up to, and what is strange

    def headers(self, partition: int, offset: int) -> Pairs:
        """Return a record's headers; none where the log does not have it any more, or its batch cannot be read.

        Raises `BrokerError` where the cluster does not answer.
        """
        start, end, strange = self._read.get(partition, (0, 0, {}))
        if not start <= offset < end:
            end, strange = self._fetch(TopicPartition(self._topic, partition), offset)
            self._read[partition] = offset, end, strange
        return strange.get(offset, ())

    def _fetch(self, tp: TopicPartition, offset: int) -> tuple[int, dict[int, Pairs]]:
        try:
            return asyncio.run(asyncio.wait_for(_read(self._settings, tp, offset), _WITHIN))
        except TimeoutError as error:
            raise BrokerError(f"{tp} offset {offset}: cannot be read within {_WITHIN:g} s") from error


async def _read(settings: ClientSettings, tp: TopicPartition, offset: int) -> tuple[int, dict[int, Pairs]]:
    client = AIOKafkaClient(**settings.aiokafka(), request_timeout_ms=_REQUEST_MS)
    try:
        while True:
            try:
                end, strange = strange_headers(await _fetched(client, tp, offset))
                if end > offset:
                    return end, strange
            except OffsetOutOfRangeError:
                return offset + 1, {}
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


def strange_headers(fetched: bytes) -> tuple[int, dict[int, Pairs]]:
    """The offset behind the batches in the bytes of a fetch, and by offset the headers with a key that is no text.

    A batch that cannot be read (by its compression, or as it is damaged) is passed over.
    """
    at, behind = 0, 0
    strange: dict[int, Pairs] = {}
    while at + _BATCH_START.size < len(fetched):
        _base, length = _BATCH_START.unpack_from(fetched, at)
        end = at + _BATCH_START.size + length
        if end > len(fetched) or length <= 0:
            break  # the broker cuts the last batch of a fetch where its limit falls
        batch = _LenientBatch(fetched[at:end])
        behind, at = batch.next_offset, end
        try:
            strange |= {offset: pairs for offset, pairs in batch if any(type(name) is bytes for name, _ in pairs)}
        except Exception as error:  # noqa: BLE001 - a client chooses the bytes, and they are not worth a stage
            log.warning("the headers of the records before offset %d cannot be read: %r", behind, error)
    return behind, strange


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
