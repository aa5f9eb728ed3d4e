"""What a stage reads again of its input: the records that a committed offset's note names, and what joins dropped."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from spillway.agents.run.intake import PoisonError
from spillway.lineage.ports import Bounds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from spillway.agents.core.joins import Fetch
    from spillway.agents.core.request import Delivery, Loss
    from spillway.agents.run.emission import Carried
    from spillway.agents.run.intake import Intake
    from spillway.checkpoint.dedup import Span
    from spillway.lineage.ports import Record, Spans


class Memory:
    """Reads what was known of partitions of one topic."""

    def __init__(self, topic: str, spans: Spans, intake: Intake) -> None:
        self._topic = topic
        self._spans = spans
        self._intake = intake

    async def read(self, partition: int, spans: Sequence[Span]) -> AsyncIterator[Delivery]:
        """Yield the deliveries of the records in the spans, without their values; unreadable ones are passed over."""
        for start, end in spans:
            async for records in self._spans.read(self._topic, {partition: Bounds(start, end)}, values=False):
                for record in records:
                    delivery = self._remembered(record)
                    if delivery is not None:
                        yield delivery

    def _remembered(self, record: Record) -> Delivery | None:
        try:
            return self._intake.envelope(record)
        except PoisonError as poison:
            return poison.delivery if poison.delivery.request_id else None


_RECORDS = 1_000  # in a batch
_BYTES = 16 << 20
_AT_ONCE = 32  # records decoded before the loop gets to do something else


class Rereading:
    """Reads records of one topic again, as a core asks for them: what joins have dropped of parts that waited.

    Such parts lie close together in the log, so they are read a batch at a time, which is bounded in records and bytes.
    """

    def __init__(self, topic: str, spans: Spans, intake: Intake) -> None:
        self._topic = topic
        self._spans = spans
        self._intake = intake
        self._fetched: Callable[[Fetch, Carried, Loss | None], None]
        self._crashed: Callable[[BaseException], None]
        self._asked: deque[Fetch] = deque()
        self._reading: asyncio.Task[None] | None = None

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
        """Read nothing more, and let go of the log if reading ends within so many seconds."""
        self._asked.clear()
        if self._reading is not None:
            await asyncio.wait([self._reading], timeout=within)
        await self._spans.close()

    async def _run(self) -> None:
        try:
            while self._asked:
                batch = self._batch()
                records = await self._spans.pick(self._topic, [(fetch.partition, fetch.offset) for fetch in batch])
                for number, fetch in enumerate(batch, 1):
                    record = records.get((fetch.partition, fetch.offset))
                    self._fetched(fetch, *self._intake.again(fetch, record))
                    if not number % _AT_ONCE:
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
