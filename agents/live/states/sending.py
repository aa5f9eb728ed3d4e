"""An idempotent producer for one thread: few bytes in flight, and what is not acknowledged is an error.

Whether a record stands whose delivery failed is not known: a request may have arrived whose answer did not. So nothing
is sent again here; `DeliveryError` ends whoever writes, and reading the log tells (`spillway.checkpoint.version_log`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException

from spillway.lineage.errors import BrokerError
from spillway.producers.cluster import idempotent_producer
from spillway.topology.topics import STATE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spillway.producers.connection import ClientSettings


_DELIVERY_SECONDS: Final = 120.0  # a broker that restarts is back before; then librdkafka sends the rest itself
_ROOM_BYTES: Final = 16 << 20  # in flight
_CONNECT_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.005


class DeliveryError(BrokerError):
    """A record may or may not stand in its log."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(
            f"it is not known whether {what} was written: {why}; this process ends, and its successor reads the log "
            "to find out"
        )


class Sending:
    """Produces records to partitions, with acks=all. For one thread, but for `__init__`."""

    def __init__(
        self,
        settings: ClientSettings,
        topic: str,
        *,
        delivery: float = _DELIVERY_SECONDS,
        also: Sequence[str] = (),
    ) -> None:
        """`topic` is one that must be there, `also` more to be ready for.

        Raises BrokerError where the cluster cannot be reached.
        """
        self.in_flight = 0  # records
        self.acked_bytes = 0  # so far
        self._bytes = 0
        self._failure: DeliveryError | None = None
        self._producer = idempotent_producer(
            settings,
            topic,
            _CONNECT_SECONDS,
            {
                "linger.ms": 0,
                "acks": "all",
                "compression.type": "none",
                "message.max.bytes": STATE_BYTES,  # what the topics take, which is of a batch
                "message.timeout.ms": int(delivery * 1_000),
                "queue.buffering.max.kbytes": 2 * _ROOM_BYTES >> 10,
                "batch.size": STATE_BYTES,
                "socket.nagle.disable": True,
            },
            self._fatal,
            also,
        )

    @property
    def full(self) -> bool:
        return self._bytes >= _ROOM_BYTES

    def send(
        self, topic: str, partition: int, key: bytes, value: Any, acked: Callable[[], object] | None = None
    ) -> None:
        """Hand over one record (None: a tombstone), after room was made; `acked` is called by a later `serve`.

        Raises DeliveryError.
        """
        size = 0 if value is None else memoryview(value).nbytes

        def delivered(error: Any, _message: Any) -> None:
            self.in_flight -= 1
            self._bytes -= size
            if error is not None:
                what = f"the record {key.decode(errors='replace')!r} in {topic}[{partition}]"
                self._failure = self._failure or DeliveryError(what, error.str())
                return
            self.acked_bytes += size
            if acked is not None:
                acked()

        while True:
            while self.full:
                self.serve()
            try:
                self._producer.produce(topic, value, key, partition, delivered)
            except BufferError:
                self.serve()
                continue
            except KafkaException as error:
                raise DeliveryError(f"the record {key!r:.80}", error.args[0].str()) from error
            break
        self.in_flight += 1
        self._bytes += size

    def serve(self, seconds: float = _POLL_SECONDS) -> None:
        """Serve what was acknowledged, waiting for the first. Raises DeliveryError for what was not."""
        self._producer.poll(seconds)
        if self._failure is not None:
            raise self._failure

    def _fatal(self, text: str) -> None:
        self._failure = self._failure or DeliveryError("the last record", text)
