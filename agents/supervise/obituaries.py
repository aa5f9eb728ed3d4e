"""Tells the members of stateful shards that one of them is dead, on `<p>.beat`, where they listen for its heartbeats.

A report names one process, and is true: the supervisor has seen it end. So it counts at once (rule 13), and no member
has to wait for the silence of a lease. While the broker is away reports wait; members that hear of a death late, or
never, find out by that silence.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from lineage.replication import Report
from lineage.values.replication import encode
from producers.cluster import idempotent_producer
from topology.topics import beat

if TYPE_CHECKING:
    from producers.connection import ClientSettings

log = logging.getLogger(__name__)

_CONNECT_SECONDS = 30.0
_FLUSH_SECONDS = 1.0


class KafkaObituaries:
    """Reports of a pipeline's supervisor. Raises BrokerError, TopicError where the topic cannot be reached at first."""

    def __init__(self, settings: ClientSettings, pipeline: str) -> None:
        """Connect, so that a report leaves without delay when there is one."""
        self._topic = beat(pipeline)
        options = {"linger.ms": 0, "message.timeout.ms": 60_000}
        self._producer = idempotent_producer(settings, self._topic, _CONNECT_SECONDS, options)

    def report(self, stage: str, shard: int, member: str) -> None:
        """Tell all members of the shard that the process `member` is dead. Does not block."""
        report = Report(stage, shard, (member,), time.time_ns() // 1_000, "its supervisor saw it end")
        try:
            self._producer.produce(self._topic, encode(report), f"{stage}/{shard}/", 0, on_delivery=_told)
            self._producer.poll(0)
        except (BufferError, KafkaException) as error:
            _told(error, None)

    def close(self) -> None:
        """Let what is under way leave."""
        self._producer.flush(_FLUSH_SECONDS)


def _told(error: Any, _message: Any) -> None:
    if error is not None:
        log.warning("a death could not be reported; the members find out by silence: %s", error)
