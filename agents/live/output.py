"""What a stage produces: a librdkafka producer whose delivery reports come back to the loop in bunches.

librdkafka sends on threads of its own, at once. Its delivery reports only move offsets on, so the loop collects them
from time to time while there are any to come: a wakeup for each would cost a tenth of what the message does. Whoever
waits for them asks (`hurry`): then the loop looks every few milliseconds until some have come. So it does while many
are in flight.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer

from spillway.lineage import ports
from spillway.producers.cluster import ID_SECONDS, ProducerLog
from spillway.producers.patience import UNKNOWN_TOPIC, gone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from spillway.lineage.ports import Outgoing

log = logging.getLogger(__name__)

_ROOM_BYTES = 64 * 1024 * 1024  # in flight; librdkafka's own queue holds four times as much
_COLLECT = 0.1
_SOON = 0.005
_MANY = 64  # messages in flight from which on it looks soon: the queries that led to them are kept until then
_LOOK_UP = 2.0  # seconds
_LOOK_UP_EVERY = 300.0
_CLOSE_SECONDS = 1.0
_QUEUE = 100_000  # messages librdkafka may hold; `room` keeps us far below


class _Message(NamedTuple):
    record: Outgoing
    token: Any
    vital: bool


class Output(ports.Output):
    """Produces with acks=all and idempotence; each message carries a token that comes back when it is stored.

    A message that cannot be delivered is never skipped: `on_lost` is called once, and the process must end without
    committing what the message stands for. All methods and callbacks belong to the loop's thread.
    """

    def __init__(
        self,
        settings: dict[str, Any],
        loop: asyncio.AbstractEventLoop,
        *,
        on_stored: Callable[[Sequence[Any]], None],
        on_lost: Callable[[str], None],
        in_flight_limit: int = 20_000,
        collect: float | None = None,
        max_bytes: int = 16 * 1024 * 1024,
    ) -> None:
        """`collect`: seconds after which delivery reports are looked for: where a reply waits for them, few."""
        self._loop = loop
        self._on_stored = on_stored
        self._on_lost = on_lost
        self._limit = in_flight_limit
        self._collect_within = _COLLECT if collect is None else collect
        self._hurries = False  # somebody waits
        self._stored: list[Any] = []
        self._timer: asyncio.TimerHandle | None = None
        self._known: tuple[str, ...] = ()
        self._knowing: asyncio.TimerHandle | None = None
        self._looking_up: asyncio.Task[None] | None = None
        self._closed = False
        self._waiting: deque[_Message] = deque()  # for room in librdkafka's queue
        self._bytes = 0
        self.in_flight = 0
        self._said = ProducerLog()
        self._producer = Producer(
            {
                "linger.ms": 0,
                "enable.idempotence": True,
                "acks": "all",
                "compression.type": "none",
                "message.max.bytes": max_bytes,
                "queue.buffering.max.messages": _QUEUE,
                "queue.buffering.max.kbytes": 256 * 1024,
                "delivery.report.only.error": False,
                **ProducerLog.DEBUG,
                **settings,
            },
            logger=self._said,
        )

    @property
    def room(self) -> bool:
        """Whether more may be produced; where it is False, stop taking input until messages have been stored."""
        return self.in_flight < self._limit and self._bytes < _ROOM_BYTES

    async def know(self, topics: Iterable[str]) -> None:
        """Learn where the topics' partitions are, now and every few minutes, so that first messages leave at once.

        Returns when the producer has its id as well, without which nothing is sent; after `ID_SECONDS` anyhow.

        Else librdkafka asks when it is given the first message for a topic, and where something comes in between, asks
        again .1 s later, then .2 s, and so on: of new producers 1 in 100 took 40 to 100 ms. What was looked up and not
        written to it forgets after a quarter of an hour.
        """
        self._known = tuple(topics)
        await self._loop.run_in_executor(None, self._look_up)
        deadline = self._loop.time() + ID_SECONDS
        while not self._said.has_id and not self._closed and self._loop.time() < deadline:
            self._producer.poll(0)
            await asyncio.sleep(_COLLECT)
            await self._loop.run_in_executor(None, self._look_up)
        if not self._closed:
            self._knowing = self._loop.call_later(_LOOK_UP_EVERY, self._know_again)

    def _know_again(self) -> None:
        self._looking_up = self._loop.create_task(self.know(self._known))

    def _look_up(self) -> None:
        for topic in self._known:
            try:
                self._producer.list_topics(topic, _LOOK_UP)
            except KafkaException as error:
                log.warning(
                    "%s cannot be looked up now; its first message will look it up again: %s",
                    topic,
                    error.args[0].str(),
                )

    def send(self, record: Outgoing, token: object, *, vital: bool = True) -> None:
        """Produce one message; `token` is handed to `on_stored` once the broker has it.

        One that is not `vital` may get lost: then its token comes back all the same.
        """
        self.in_flight += 1
        self._bytes += len(record.value or b"")
        if self._timer is None:
            self._timer = self._loop.call_later(self._within, self._collect)
        elif self.in_flight == _MANY:
            self._timer.cancel()
            self._timer = self._loop.call_later(self._within, self._collect)
        message = _Message(record, token, vital)
        if self._waiting or not self._produce(message):
            self._waiting.append(message)

    def _produce(self, message: _Message) -> bool:
        """Give a message to librdkafka; False if it has no room at present."""

        def delivered(error: Any, _message: Any) -> None:
            if error is not None:
                self._failed(message, error)
                return
            self._stored.append(message.token)
            self._bytes -= len(message.record.value or b"")

        topic, partition, key, value, headers = message.record
        try:
            self._producer.produce(topic, value, key, partition, delivered, headers=list(headers))
        except BufferError:
            return False
        except KafkaException as error:
            self._failed(message, error.args[0])
        return True

    @property
    def _within(self) -> float:
        """Seconds until it looks for reports again."""
        return min(_SOON, self._collect_within) if self._hurries or self.in_flight >= _MANY else self._collect_within

    def hurry(self) -> None:
        self._hurries = True
        if self._timer is not None:
            self._timer.cancel()
            self._collect()

    def _collect(self) -> None:
        self._timer = None
        self._producer.poll(0)
        while self._waiting and self._produce(self._waiting[0]):
            self._waiting.popleft()
        stored, self._stored = self._stored, []
        self.in_flight -= len(stored)
        if stored:
            self._hurries = False
        if self.in_flight:
            self._timer = self._loop.call_later(self._within, self._collect)
        if stored:
            self._on_stored(stored)

    def _failed(self, message: _Message, error: KafkaError) -> None:
        topic = message.record.topic
        text = f"A message could not be delivered to {topic}: {error}"
        if error.code() in UNKNOWN_TOPIC:
            text = gone(topic, error.str())
        if message.vital:
            self._on_lost(text)
            return
        log.warning("%s", text)
        self._stored.append(message.token)
        self._bytes -= len(message.record.value or b"")

    async def close(self) -> None:
        """Wait a second for what is under way."""
        if self._closed:
            return
        self._closed = True
        if self._knowing is not None:
            self._knowing.cancel()
        await asyncio.to_thread(self._producer.flush, _CLOSE_SECONDS)
        if self._timer is not None:
            self._timer.cancel()
