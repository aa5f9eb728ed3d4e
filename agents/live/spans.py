"""Stretches of a partition: where one begins and ends, and reading it again, outside of any consumer group."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import OffsetSpec

from agents.live.admin import ANSWER_SECONDS
from lineage.errors import BrokerError
from producers.patience import passes, unanswered

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from confluent_kafka.admin import AdminClient

    from agents.live.admin import Admin

log = logging.getLogger(__name__)

_READ_AT_ONCE = 500


@dataclass(slots=True, frozen=True)
class Span:
    """Offsets `start` to `end` (not included) of a partition."""

    start: int
    end: int


def bounds(admin: Admin, topic: str, partitions: Iterable[int], within: float) -> dict[int, Span]:
    """The first offset of each partition and its end, with records of open transactions counted in."""
    either = IsolationLevel.READ_UNCOMMITTED
    first = offsets(admin, topic, partitions, OffsetSpec.earliest(), either, within)
    last = offsets(admin, topic, first, OffsetSpec.latest(), either, within)
    return {partition: Span(first[partition], last[partition]) for partition in first}


def offsets(
    admin: Admin,
    topic: str,
    partitions: Iterable[int],
    spec: OffsetSpec,
    isolation: IsolationLevel,
    within: float,
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


def read_spans(settings: Mapping[str, Any], topic: str, spans: Mapping[int, Span], within: float) -> Iterator[Any]:
    """Yield the committed records (`confluent_kafka.Message`) of `topic` in `spans`, in order within a partition.

    Uses a consumer of its own, in no group. What retention has deleted meanwhile is passed over. Raises
    `BrokerError` when an end is not reached within `within` seconds, which is so while a transaction hangs below it.
    """
    waiting = {partition: span for partition, span in spans.items() if span.start < span.end}
    if not waiting:
        return
    until = time.monotonic() + within
    reader = _reader(settings, topic)
    try:
        reader.assign([TopicPartition(topic, partition, span.start) for partition, span in waiting.items()])
        while waiting:
            for message in reader.consume(_READ_AT_ONCE, 0.1):
                span = waiting.get(message.partition())
                if span is None:
                    continue
                if message.error() is None and message.offset() < span.end:
                    yield message
                if _reached(message, span, topic):
                    del waiting[message.partition()]
            if waiting and time.monotonic() >= until:
                raise BrokerError(
                    f"could not read {topic} {sorted(waiting)} up to its end within {within:.0f} s; "
                    "is a transaction hanging there?"
                )
    finally:
        reader.close()


def _reader(settings: Mapping[str, Any], topic: str) -> Consumer:
    return Consumer(
        {
            **settings,
            "group.id": f"{topic}.reader",  # librdkafka wants one; nothing is joined or committed under it
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 20,
            "queued.max.messages.kbytes": 16384,
        },
        logger=log,
    )


def _reached(message: Any, span: Span, topic: str) -> bool:
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
