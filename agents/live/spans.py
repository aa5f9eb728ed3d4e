"""Stretches of a partition: where one begins and ends, and reading it again, outside of any consumer group."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import OffsetSpec

from spillway.agents.live.admin import ANSWER_SECONDS, Admin
from spillway.lineage.errors import BrokerError
from spillway.lineage.ports import Bounds, Spans
from spillway.producers.kafka.records import record_of
from spillway.producers.patience import passes, unanswered

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping

    from confluent_kafka.admin import AdminClient

    from spillway.lineage.ports import Record

log = logging.getLogger(__name__)

_READ_AT_ONCE = 500


def bounds(admin: Admin, topic: str, partitions: Iterable[int], within: float) -> dict[int, Bounds]:
    """The first offset of each partition and its end, with records of open transactions counted in."""
    either = IsolationLevel.READ_UNCOMMITTED
    first = offsets(admin, topic, partitions, OffsetSpec.earliest(), either, within)
    last = offsets(admin, topic, first, OffsetSpec.latest(), either, within)
    return {partition: Bounds(first[partition], last[partition]) for partition in first}


def offsets(
    admin: Admin, topic: str, partitions: Iterable[int], spec: OffsetSpec, isolation: IsolationLevel, within: float
) -> dict[int, int]:
    """The offset of each partition that `spec` names. Raises `BrokerError` when nobody says within `within` seconds."""
    wanted = {TopicPartition(topic, partition): spec for partition in partitions}

    def question(client: AdminClient) -> dict[int, int]:
        futures = client.list_offsets(wanted, isolation_level=isolation, request_timeout=ANSWER_SECONDS)
        found = {place.partition: future.result().offset for place, future in futures.items()}
        if min(found.values(), default=0) < 0:  # said of a partition that has no leader, without an error
            raise unanswered()
        return found

    return admin.ask(question, f"list the offsets of {topic}", within)


def read_spans(settings: Mapping[str, Any], topic: str, spans: Mapping[int, Bounds], within: float) -> Iterator[Any]:
    """Yield the committed records (`confluent_kafka.Message`) of `topic` in `spans`, in order within a partition.

    Uses a consumer of its own, in no group. What retention has deleted meanwhile is passed over. Raises
    `BrokerError` when an end is not reached within `within` seconds, which is so while a transaction hangs below it.
    """
    if not any(span.start < span.end for span in spans.values()):
        return
    with closing(SpanReader(settings, topic)) as reader:
        yield from reader.read(spans, within)


class SpanReader:
    """Reads spans of one topic again and again, with one consumer in no group."""

    def __init__(self, settings: Mapping[str, Any], topic: str) -> None:
        self._topic = topic
        options = {
            **settings,
            "group.id": f"{topic}.reader",  # librdkafka wants one; nothing is joined or committed under it
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 20,
            "queued.max.messages.kbytes": 16384,
        }
        self._reader = Consumer(options, logger=log)

    def read(self, spans: Mapping[int, Bounds], within: float) -> Iterator[Any]:
        waiting = {partition: span for partition, span in spans.items() if span.start < span.end}
        until = time.monotonic() + within
        self._reader.assign([TopicPartition(self._topic, partition, span.start) for partition, span in waiting.items()])
        while waiting:
            for message in self._reader.consume(_READ_AT_ONCE, 0.1):
                span = waiting.get(message.partition())
                if span is None:
                    continue
                if message.error() is None and message.offset() < span.end:
                    yield message
                if _reached(message, span, self._topic):
                    del waiting[message.partition()]
            if waiting and time.monotonic() >= until:
                raise BrokerError(
                    f"could not read {self._topic} {sorted(waiting)} up to its end within {within:.0f} s; does a "
                    "transaction hang there?"
                )
        self._reader.unassign()

    def records(self, places: Iterable[tuple[int, int]], within: float) -> dict[tuple[int, int], Any]:
        """Read single records by (partition, offset), those that lie near each other in one go; the others are gone."""
        wanted: dict[int, list[int]] = {}
        for partition, offset in places:
            wanted.setdefault(partition, []).append(offset)
        spans = {partition: near(offsets) for partition, offsets in wanted.items()}
        found = {}
        for nth in range(max(map(len, spans.values()), default=0)):
            some = {partition: of[nth] for partition, of in spans.items() if nth < len(of)}
            chosen = {(partition, offset) for partition in some for offset in wanted[partition]}
            for message in self.read(some, within):
                place = message.partition(), message.offset()
                if place in chosen:
                    found[place] = message
        return found

    def close(self) -> None:
        self._reader.close()


_Answer = TypeVar("_Answer")
_WITHIN = 60.0  # seconds for one stretch
_BUNCH = 500  # records that are handed over at once


async def at_once(call: Callable[[], _Answer]) -> _Answer:
    """Call it here: for a process in which nobody else waits for this thread."""
    return call()


class KafkaSpans(Spans):
    """Reads by calls that block: `call` says where they are made.

    A stretch has a consumer of its own, as who reads it may be cancelled within a call; `pick` keeps one for a topic.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        call: Callable[[Callable[[], Any]], Awaitable[Any]] = asyncio.to_thread,
        within: float = _WITHIN,
    ) -> None:
        """`within`: seconds for one stretch, or for the bounds."""
        self._settings = settings
        self._call = call
        self._within = within
        self._admin: Admin | None = None
        self._readers: dict[str, SpanReader] = {}
        self._turn = asyncio.Lock()  # of who picks: a reader reads one thing at a time

    async def bounds(self, topic: str, partitions: Iterable[int]) -> dict[int, Bounds]:
        wanted = list(partitions)

        def ask() -> dict[int, Bounds]:
            self._admin = self._admin or Admin(self._settings)
            return bounds(self._admin, topic, wanted, self._within)

        return await self._call(ask)  # type: ignore[no-any-return]

    async def read(
        self, topic: str, spans: Mapping[int, Bounds], *, values: bool = True
    ) -> AsyncIterator[list[Record]]:
        messages = read_spans(self._settings, topic, spans, self._within)
        while bunch := await self._call(lambda: [record_of(m, value=values) for m in islice(messages, _BUNCH)]):
            yield bunch

    async def pick(self, topic: str, places: Iterable[tuple[int, int]]) -> dict[tuple[int, int], Record]:
        wanted = list(places)
        async with self._turn:
            found = await self._call(lambda: self._reader(topic).records(wanted, self._within))
        return {place: record_of(message) for place, message in found.items()}

    async def close(self) -> None:
        """Close what is kept, unless it is at work: it ends with its process then."""
        if self._turn.locked():
            return
        readers, self._readers = list(self._readers.values()), {}
        for reader in readers:
            await self._call(reader.close)

    def _reader(self, topic: str) -> SpanReader:
        reader = self._readers.get(topic)
        if reader is None:
            reader = self._readers[topic] = SpanReader(self._settings, topic)
        return reader


def near(offsets: Iterable[int], apart: int = 500) -> list[Bounds]:
    """Join offsets to spans; what lies no further apart is read rather than skipped, as another seek costs more."""
    spans: list[Bounds] = []
    for offset in sorted(offsets):
        if spans and offset - spans[-1].end <= apart:
            spans[-1] = Bounds(spans[-1].start, offset + 1)
        else:
            spans.append(Bounds(offset, offset + 1))
    return spans


def _reached(message: Any, span: Bounds, topic: str) -> bool:
    """Whether this message, or the end-of-partition mark in its place, says that `span` has been read.

    The mark stands at the end of what is committed so far: below `span.end` as long as a transaction is open there.
    """
    error = message.error()
    if error is None:
        return bool(message.offset() + 1 >= span.end)
    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 (librdkafka's local codes have underscores)
        return bool(message.offset() >= span.end)
    if passes(error):
        return False
    raise BrokerError(f"cannot read {topic}[{message.partition()}]: {error.str()}")
