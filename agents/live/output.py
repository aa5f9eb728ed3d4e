"""What a stage produces: a librdkafka producer whose delivery reports come back to the loop in bunches.

librdkafka sends on threads of its own; a thread here serves its delivery reports. Reports are gathered and given to the
loop once per wake-up, because waking the loop costs more than a message does.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, Producer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

log = logging.getLogger(__name__)

Headers = list[tuple[str, bytes]]

_POLL = 0.1
_QUEUE = 100_000  # messages librdkafka may hold; `room` keeps us far below


class Output:
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
        linger: float = 0.0,
        max_bytes: int = 16 * 1024 * 1024,
    ) -> None:
        self._loop = loop
        self._on_stored = on_stored
        self._on_lost = on_lost
        self._limit = in_flight_limit
        self._stored: deque[Any] = deque()
        self._failure: str | None = None
        self._woken = False
        self._lock = threading.Lock()
        self.in_flight = 0
        self._producer = Producer(
            {
                "linger.ms": linger * 1000,
                "enable.idempotence": True,
                "acks": "all",
                "compression.type": "none",
                "message.max.bytes": max_bytes,
                "queue.buffering.max.messages": _QUEUE,
                "queue.buffering.max.kbytes": 256 * 1024,
                "delivery.report.only.error": False,
                **settings,
            },
            logger=log,
        )
        self._running = True
        self._thread = threading.Thread(target=self._serve, name="output", daemon=True)
        self._thread.start()

    @property
    def room(self) -> bool:
        """Whether more may be produced; where it is False, stop taking input until messages have been stored."""
        return self.in_flight < self._limit

    def send(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Headers, token: Any
    ) -> None:
        """Produce one message; `token` is handed to `on_stored` once the broker has it."""

        def delivered(error: Any, _message: Any) -> None:
            self._delivered(error, topic, token)

        self.in_flight += 1
        try:
            self._producer.produce(topic, value, key, partition, delivered, headers=headers)
        except BufferError:
            self._producer.poll(_POLL)  # bytes, not messages, fill it: only huge values get here, so waiting is right
            self._producer.produce(topic, value, key, partition, delivered, headers=headers)
        except KafkaException as error:
            self._report_lost(f"{topic}: {error}")

    def _delivered(self, error: Any, topic: str, token: Any) -> None:
        if error is not None:
            self._failure = f"{topic}: {error}"
        else:
            self._stored.append(token)
        with self._lock:
            if self._woken:
                return
            self._woken = True
        self._loop.call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        with self._lock:
            self._woken = False
        stored = self._stored
        tokens = [stored.popleft() for _ in range(len(stored))]
        self.in_flight -= len(tokens)
        if tokens:
            self._on_stored(tokens)
        if self._failure is not None:
            self._report_lost(self._failure)

    def _report_lost(self, text: str) -> None:
        self._failure = None
        self._on_lost(f"A message could not be delivered to {text}")

    def _serve(self) -> None:
        while self._running:
            self._producer.poll(_POLL)

    def flush(self, timeout: float) -> int:
        """Wait until everything is stored, at most `timeout` seconds; return how many messages still are not."""
        return int(self._producer.flush(timeout))

    def close(self) -> None:
        """Stop serving delivery reports. Call after `flush`."""
        self._running = False
        self._thread.join(2 * _POLL + 1.0)
