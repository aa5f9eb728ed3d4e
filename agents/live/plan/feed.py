"""What the replicas say of themselves, as it comes in on `<p>.plan`: a reader without a group, in a thread of its own.

It begins with the words of the last minute, not with the topic's first record: an older word counts for nothing, and
until Kafka compacts it the topic holds hours of them. A broker that is away, or a topic that is not there, stops
nothing: the thread tries again, and policies go on with what they know.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, TopicPartition

from lineage.errors import SpillwayError
from producers.cluster import Reader

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence

    from producers.connection import ClientSettings

log = logging.getLogger(__name__)

Word = tuple[bytes | None, bytes | None]  # key and value

_SINCE = 60.0  # seconds before the start
_AT_ONCE = 500
_POLL = 0.25
_AGAIN = 2.0
_CONNECT = 10.0
_QUIET = 5.0  # seconds without a word after which the broker is asked whether it is there
_MOST_BYTES = 256 * 1024  # of one fetch: who floods the topic fills nobody's memory


class PlanFeed:
    """Gives the topic's records to `hear`, on the loop, in order and in bunches."""

    def __init__(
        self,
        settings: ClientSettings,
        topic: str,
        loop: asyncio.AbstractEventLoop,
        hear: Callable[[Sequence[Word]], None],
        period: float,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """`period`: seconds between two words of a replica; the broker is asked that often where nobody speaks.

        `options` are librdkafka's, beyond `settings`.
        """
        self._settings = settings
        self._topic = topic
        self._loop = loop
        self._hear = hear
        self._options: dict[str, Any] = {
            "fetch.wait.max.ms": round(1000 * min(max(period, 0.1), 1.0)),
            "fetch.max.bytes": _MOST_BYTES,
            "max.partition.fetch.bytes": _MOST_BYTES,
            "queued.max.messages.kbytes": 1024,
            "message.max.bytes": _MOST_BYTES,
            **(options or {}),
        }
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="plan-feed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout: float) -> None:
        self._stop.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        said = ""
        while not self._stop.is_set():
            try:
                self._read()
            except (SpillwayError, KafkaException) as error:
                if str(error) != said:
                    said = str(error)
                    log.warning("%s cannot be read, trying again: %s", self._topic, said)
            self._stop.wait(_AGAIN)

    def _read(self) -> None:
        """Read until told to stop. Raises where that cannot begin, or cannot go on."""
        reader = Reader(self._settings, self._options)
        try:
            reader.partitions(self._topic, _CONNECT)
            since = TopicPartition(self._topic, 0, int(1000 * (time.time() - _SINCE)))
            reader.assign(reader.consumer.offsets_for_times([since], _CONNECT))
            while not self._stop.is_set():
                messages = reader.read(_POLL, _AT_ONCE)
                if messages:
                    self._give(messages)
                reader.heed(_QUIET, _AGAIN)
        finally:
            reader.close()

    def _give(self, messages: Sequence[Any]) -> None:
        failure = next((error for message in messages if (error := message.error()) is not None), None)
        words = [(message.key(), message.value()) for message in messages if message.error() is None]
        if words and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._hear, words)
        if failure is not None and not failure.retriable():
            raise KafkaException(failure)
