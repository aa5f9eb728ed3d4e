"""Tells the members of stateful shards that one of them is dead, on `<p>.beat`, where they listen for its heartbeats.

A report names one process that the supervisor has seen end. So it counts at once (rule 13), and no member has to wait
for the silence of a lease. A report that the broker does not take in time is lost; then the members find out by that
silence.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from agents.live.states.beats import Reporter

if TYPE_CHECKING:
    from producers.connection import ClientSettings

log = logging.getLogger(__name__)

_CONNECT_SECONDS = 30.0
_FLUSH_SECONDS = 1.0


class KafkaObituaries:
    """Reports of a pipeline's supervisor. Raises BrokerError where the cluster cannot be reached at first."""

    def __init__(self, settings: ClientSettings, pipeline: str) -> None:
        self._reporter = Reporter(settings, pipeline)
        self._reporter.connect(_CONNECT_SECONDS)

    def report(self, stage: str, shard: int, member: str) -> None:
        """Tell all members of the shard that the process `member` is dead. Does not block."""
        self._reporter.report(stage, shard, [member], "its supervisor saw it end")

    def close(self) -> None:
        if not self._reporter.flush(_FLUSH_SECONDS):
            log.warning("not every death could be reported; the members find out by silence")
