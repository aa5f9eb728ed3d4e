"""What a stage reads when a partition comes to it: the committed offset with its note, and the records it names.

The records are read by a short-lived consumer without a group, so that the stage's own positions do not move, and off
the loop, so that heartbeats go on.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiokafka import TopicPartition
from aiokafka.structs import ConsumerRecord
from confluent_kafka import KafkaException

from agents.live.spans import Span as OffsetSpan
from agents.live.spans import read_spans
from agents.live.stage.intake import PoisonError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence

    from aiokafka.structs import OffsetAndMetadata
    from confluent_kafka import Message

    from agents.core.request import Delivery
    from agents.live.stage.intake import Intake
    from checkpoint.dedup import Span

_WITHIN = 60.0  # seconds for one span
_AT_ONCE = 500


class Memory:
    """Reads what was known of partitions of one topic."""

    def __init__(self, topic: str, settings: dict[str, Any], intake: Intake) -> None:
        self._topic = topic
        self._settings = settings
        self._intake = intake
        self.committed: Callable[[list[TopicPartition]], Awaitable[Mapping[TopicPartition, OffsetAndMetadata]]] = (
            _nothing_committed
        )

    async def places(self, partitions: Sequence[int]) -> dict[int, tuple[int, str]]:
        """Return each partition's committed offset and the note beside it; one without a commit is missing."""
        asked = [TopicPartition(self._topic, partition) for partition in partitions]
        found = await self.committed(asked) if asked else {}
        return {tp.partition: (place.offset, place.metadata or "") for tp, place in found.items()}

    async def read(self, partition: int, spans: Sequence[Span]) -> AsyncIterator[Delivery]:
        """Yield the deliveries of the records in the spans, without their values; unreadable ones are passed over."""
        for start, end in spans:
            messages = read_spans(self._settings, self._topic, {partition: OffsetSpan(start, end)}, _WITHIN)
            while bunch := await asyncio.to_thread(_next, messages):
                for message in bunch:
                    delivery = self._remembered(message)
                    if delivery is not None:
                        yield delivery

    def _remembered(self, message: Message) -> Delivery | None:
        try:
            return self._intake.envelope(record_of(message))
        except PoisonError as poison:
            return poison.delivery if poison.delivery.request_id else None


def _next(messages: Iterator[Message]) -> list[Message]:
    bunch = []
    for message in messages:
        bunch.append(message)
        if len(bunch) >= _AT_ONCE:
            break
    return bunch


def record_of(message: Message, value: bytes | None = None) -> ConsumerRecord:
    """Give a message as aiokafka would; without its value unless that is given, too."""
    kind, timestamp = message.timestamp()
    try:
        pairs = tuple(message.headers() or ())
    except (UnicodeDecodeError, KafkaException):
        pairs = ()  # one of its keys is no text; it was poison then, too
    return ConsumerRecord(
        message.topic(), message.partition(), message.offset(), timestamp, int(kind == 2),  # noqa: PLR2004 - LogAppendTime
        message.key(), value, None, -1, -1, pairs,
    )  # fmt: skip


async def _nothing_committed(_partitions: list[TopicPartition]) -> Mapping[TopicPartition, OffsetAndMetadata]:
    return {}
