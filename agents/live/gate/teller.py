"""The gate's word for the stages: how long an outcome takes through it, which their estimates have to reach beyond.

The gate is no stage and has no policy; of what a stage tells, it tells only the hops. Its word goes out beside the
transactions, by a producer of its own: what it says commits nothing, and may get lost.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, Producer

from agents.core.board import word_of
from agents.core.policy import StageState
from lineage.metric_names import GATE
from lineage.values.codec import encode_word
from topology import topics

if TYPE_CHECKING:
    from agents.live.metrics import GateMetrics
    from producers.connection import ClientSettings

log = logging.getLogger(__name__)

_LOST_AFTER_MS = 2_000


class Teller:
    """Says the gate's word once a period, when `tell` is called often enough."""

    def __init__(
        self, settings: ClientSettings, pipeline: str, replica: int, metrics: GateMetrics, period: float
    ) -> None:
        self._topic = topics.plan(pipeline)
        self._key = f"{GATE}.{replica}".encode()
        self._replica = replica
        self._metrics = metrics
        self._period = period
        self._began_us = time.time_ns() // 1000
        self._said = 0.0  # unix seconds
        self._producer = Producer(
            {**settings.confluent(), "linger.ms": 0, "message.timeout.ms": _LOST_AFTER_MS}, logger=log
        )

    def tell(self, now: float) -> None:
        if now - self._said < self._period:
            return
        span, self._said = min(now - self._said, self._period), now
        hops = self._metrics.transfer.samples(now)
        word = word_of(StageState(GATE, self._replica, now, span=span, hops=hops), self._began_us)
        try:
            self._producer.produce(self._topic, encode_word(word), self._key, partition=0)
        except (BufferError, KafkaException) as error:
            log.warning("the gate's word is not said: %s", error)
        self._producer.poll(0)

    def close(self) -> None:
        self._producer.purge()
