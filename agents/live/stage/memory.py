"""What a stage reads when a partition comes to it: the committed offset with its note, and the records it names.

The records are read by a short-lived consumer without a group, so that the stage's own positions do not move, and off
the loop, so that heartbeats go on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from spillway.agents.live.spans import Span as OffsetSpan
from spillway.agents.live.spans import SpanReader, read_spans
from spillway.agents.live.stage.intake import PoisonError
from spillway.producers.kafka.records import record_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

    from confluent_kafka import Message

    from spillway.agents.core.joins import Fetch
    from spillway.agents.core.request import Delivery, Loss
    from spillway.agents.live.stage.emission import Carried
    from spillway.agents.live.stage.intake import Intake
    from spillway.checkpoint.dedup import Span


_WITHIN = 60.0  # seconds for one span
_AT_ONCE = 500


class Memory:
    """Reads what was known of partitions of one topic."""

    def __init__(self, topic: str, settings: dict[str, Any], intake: Intake) -> None:
        self._topic = topic
        self._settings = settings
        self._intake = intake
        self.committed: Callable[[Sequence[int]], Awaitable[Mapping[int, tuple[int, str]]]] = _nothing_committed

    async def places(self, partitions: Sequence[int]) -> dict[int, tuple[int, str]]:
        """Return each partition's committed offset and the note beside it; one without a commit is missing."""
        return dict(await self.committed(partitions))

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
            return self._intake.envelope(record_of(message, value=False))
        except PoisonError as poison:
            return poison.delivery if poison.delivery.request_id else None


def _next(messages: Iterator[Message]) -> list[Message]:
    bunch = []
    for message in messages:
        bunch.append(message)
        if len(bunch) >= _AT_ONCE:
            break
    return bunch


async def _nothing_committed(_partitions: Sequence[int]) -> Mapping[int, tuple[int, str]]:
    return {}


# Reading again what joins have dropped of records that waited: off the loop, a batch at a time, by offset.
#
# The parts that wait while a branch is away lie close together in the log, so a batch is a few stretches of it, read
# from front to back by a consumer of its own, which is in no group. One batch is under way at a time, bounded in
# records and in bytes.

_AGAIN_WITHIN = 60.0  # seconds for one stretch
_RECORDS = 1_000  # in a batch
_BYTES = 16 << 20
_AGAIN_AT_ONCE = 32  # records decoded before the loop gets to do something else


class Rereading:
    """Reads records of one topic again, as a core asks for them."""

    def __init__(self, topic: str, settings: dict[str, Any], intake: Intake) -> None:
        self._topic = topic
        self._settings = settings
        self._intake = intake
        self._fetched: Callable[[Fetch, Carried, Loss | None], None]
        self._crashed: Callable[[BaseException], None]
        self._asked: deque[Fetch] = deque()
        self._reading: asyncio.Task[None] | None = None
        self._reader: SpanReader | None = None

    def begin(
        self, fetched: Callable[[Fetch, Carried, Loss | None], None], crashed: Callable[[BaseException], None]
    ) -> None:
        """`fetched` is called on the loop, for each record that is asked for; `crashed` where reading fails."""
        self._fetched, self._crashed = fetched, crashed

    def ask(self, fetches: Iterable[Fetch]) -> None:
        self._asked.extend(fetches)
        if self._asked and self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._run())

    async def stop(self, within: float) -> None:
        """Read nothing more, and let the consumer go if it ends within so many seconds."""
        self._asked.clear()
        if self._reading is not None:
            await asyncio.wait([self._reading], timeout=within)
        if self._reading is None and self._reader is not None:
            await asyncio.to_thread(self._reader.close)

    async def _run(self) -> None:
        try:
            while self._asked:
                batch = self._batch()
                messages = await asyncio.to_thread(self._read, batch)
                for number, fetch in enumerate(batch, 1):
                    message = messages.get((fetch.partition, fetch.offset))
                    record = None if message is None else record_of(message)
                    self._fetched(fetch, *self._intake.again(fetch, record))
                    if not number % _AGAIN_AT_ONCE:
                        await asyncio.sleep(0)
            self._reading = None
        except Exception as error:  # noqa: BLE001 - what is not read again would never be answered
            self._crashed(error)

    def _batch(self) -> list[Fetch]:
        batch: list[Fetch] = []
        size = 0
        while self._asked and len(batch) < _RECORDS and size < _BYTES:
            fetch = self._asked.popleft()
            size += fetch.part.size if fetch.part is not None else 0
            batch.append(fetch)
        return batch

    def _read(self, batch: list[Fetch]) -> dict[tuple[int, int], Any]:
        if self._reader is None:
            self._reader = SpanReader(self._settings, self._topic)
        return self._reader.records([(fetch.partition, fetch.offset) for fetch in batch], _AGAIN_WITHIN)
