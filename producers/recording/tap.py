"""The tap: copies what passes a running pipeline's ingress and egress into a recording.

It reads at its own position, joins no group, commits nothing and creates nothing, so the pipeline cannot tell that it
is there (beyond the broker's reads).
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError

from spillway.lineage.errors import BrokerError
from spillway.producers.cluster import Reader
from spillway.producers.kafka.records import header_pairs
from spillway.producers.recording.files import Recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spillway.producers.connection import ClientSettings
    from spillway.producers.recording.files import RecordingWriter

log = logging.getLogger(__name__)

_REQUEST_SECONDS = 10.0
_READ_AT_ONCE = 1000
_POLL_SECONDS = 0.1
_QUIET_SECONDS = 5.0  # without a record, after which the cluster is asked whether it is there
_ANSWER_SECONDS = 2.0
_OPTIONS = {
    "isolation.level": "read_committed",  # what clients see of the egress
    "auto.offset.reset": "error",
    "queued.max.messages.kbytes": 65536,
}


class Tap:
    """Copies messages of some topics, from the ends that they had when the tap was opened."""

    def __init__(self, settings: ClientSettings, topics: Sequence[str]) -> None:
        """Find the present ends of `topics` and start there; `BrokerError` where one cannot be read."""
        self._reader = reader = Reader(settings, _OPTIONS)
        self.unreadable = 0  # messages left out, as a header's key was no text
        try:
            counts = {topic: reader.partitions(topic, _REQUEST_SECONDS) for topic in topics}
            ends = [reader.ends(topic, count, _REQUEST_SECONDS) for topic, count in counts.items()]
            reader.assign([place for places in ends for place in places])
        except BaseException:
            reader.close()
            raise

    def copy(self, writer: RecordingWriter, until: float, stopped: Callable[[], bool]) -> None:
        """Copy into `writer` until the monotonic time `until`, or until `stopped()`."""
        while time.monotonic() < until and not stopped():
            for message in self._reader.read(_POLL_SECONDS, _READ_AT_ONCE):
                if message.error() is not None:
                    self._judge(message)
                elif (headers := header_pairs(message)) is None:
                    self.unreadable += 1
                else:
                    place = message.topic(), message.partition(), message.offset()
                    at = message.timestamp()[1] / 1000
                    writer.write(Recorded(*place, at, message.key(), tuple(headers), message.value()))
            writer.tick(time.monotonic())
            self._reader.heed(_QUIET_SECONDS, _ANSWER_SECONDS)

    def close(self) -> None:
        self._reader.close()

    def _judge(self, message: Any) -> None:
        error = message.error()
        if error.code() in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED}:
            raise BrokerError(f"cannot read {message.topic()}: {error.str()}")
        if error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
            raise BrokerError(
                f"the recording has a gap: {message.topic()}[{message.partition()}] deleted records before they could "
                "be read; raise the topic's retention, or record on a faster disk"
            )
        log.warning("reading %s: %s", message.topic(), error.str())  # librdkafka tries again by itself
