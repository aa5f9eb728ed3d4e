"""What an offline job hears of its pipeline: the replicas' words, and the outcomes that came while nobody waited."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final, Self

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from spillway.lineage.errors import BrokerError, WireError
from spillway.lineage.headers import identify
from spillway.lineage.message import FAILED, Outcome
from spillway.lineage.reasons import UNKNOWN_SCHEMA
from spillway.lineage.values.codec import Decoder
from spillway.producers.cluster import Reader
from spillway.producers.kafka.records import header_pairs
from spillway.producers.schema_log import SchemaLog
from spillway.topology.topics import egress, plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway.lineage.limits import Limits
    from spillway.lineage.message import PlanWord
    from spillway.producers.connection import ClientSettings

log = logging.getLogger(__name__)

_CONNECT: Final = 10.0
_AT_ONCE: Final = 500
_QUIET: Final = 5.0
_ASK: Final = 1.0
_READ: Final = 60.0  # for a read to the end


class Words:
    """The words on `<p>.plan` that are said from now on. A context. One that cannot be read is passed over."""

    def __init__(self, settings: ClientSettings, pipeline: str, limits: Limits) -> None:
        """Raises BrokerError, TopicError."""
        self._schemas = SchemaLog(settings, pipeline, timeout=_CONNECT)
        self._decoder = Decoder(limits, self._schemas.open())
        self._reader = Reader(settings, {"fetch.wait.max.ms": 500, "auto.offset.reset": "latest"})
        topic = plan(pipeline)
        self._reader.assign(self._reader.ends(topic, self._reader.partitions(topic, _CONNECT), _CONNECT))

    def take(self) -> Iterator[PlanWord]:
        """Those that have come."""
        for message in self._reader.read(0.0, _AT_ONCE):
            if message.error() is None and message.value() is not None:
                try:
                    yield self._decoder.word(message.value())
                except WireError as error:
                    log.debug("a word cannot be read: %s", error)
                    if error.reason == UNKNOWN_SCHEMA:
                        self._schemas.relearn()
        self._reader.heed(_QUIET, _ASK)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._reader.close()


class Released:
    """The outcomes of one job on `<p>.egress`, from a time on. A context."""

    def __init__(self, settings: ClientSettings, pipeline: str, limits: Limits, prefix: str, since: float) -> None:
        """`prefix` begins the job's request ids; `since`: unix seconds. Raises BrokerError, TopicError."""
        self._prefix = prefix
        self._schemas = SchemaLog(settings, pipeline, timeout=_CONNECT)
        self._decoder = Decoder(limits, self._schemas.open())
        self._topic = egress(pipeline)
        options = {"isolation.level": "read_committed", "enable.partition.eof": True}
        self._reader = Reader(settings, options)
        self._partitions = self._reader.partitions(self._topic, _CONNECT)
        self._ends = self._reader.ends(self._topic, self._partitions, _CONNECT)
        asked = [TopicPartition(self._topic, n, int(since * 1000)) for n in range(self._partitions)]
        try:
            found = self._reader.consumer.offsets_for_times(asked, _CONNECT)
        except KafkaException as error:
            raise BrokerError(f"{self._topic} cannot be read: {error.args[0].str()}") from error
        # Where nothing is as new as that, the end that was before it was asked.
        starts = [place if place.offset >= 0 else self._ends[place.partition] for place in found]
        self._at = {place.partition: place.offset for place in starts}
        self._reader.assign(starts)

    def to_the_end(self) -> Iterator[tuple[str, Outcome]]:
        """What has come since the beginning, or since this was asked before, with the request ids."""
        ends = self._reader.ends(self._topic, self._partitions, _CONNECT)
        until = time.monotonic() + _READ
        while any(self._at[place.partition] < place.offset for place in ends):
            if time.monotonic() > until:
                raise BrokerError(f"{self._topic} could not be read to its end within {_READ:g} s")
            for message in self._reader.read(0.2, _AT_ONCE):
                if (found := self._read(message)) is not None:
                    yield found

    def _read(self, message: Any) -> tuple[str, Outcome] | None:
        error = message.error()
        if error is None:
            self._at[message.partition()] = message.offset() + 1
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own codes
            self._at[message.partition()] = message.offset()  # behind the marks of transactions, too
        if error is not None:
            return None
        request_id = identify(header_pairs(message))
        if not request_id.startswith(self._prefix):
            return None
        try:
            try:
                return request_id, self._decoder.released(message.value() or b"")
            except WireError as unreadable:
                if unreadable.reason != UNKNOWN_SCHEMA or not self._schemas.relearn():
                    raise
            return request_id, self._decoder.released(message.value() or b"")
        except WireError as unreadable:
            return request_id, Outcome(FAILED, {}, unreadable.reason, f"its outcome cannot be read: {unreadable}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._reader.close()
