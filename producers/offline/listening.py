"""What an offline job hears of its pipeline: the replicas' words, and the outcomes that came while nobody waited."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from spillway.lineage.errors import WireError
from spillway.lineage.headers import identify
from spillway.lineage.message import FAILED, Outcome
from spillway.lineage.values.codec import Decoder, decoded
from spillway.producers.closing import Closing
from spillway.producers.kafka.reading import Reading, slots_of
from spillway.producers.schema_log import SchemaLog
from spillway.topology.topics import egress, plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway.lineage.limits import Limits
    from spillway.lineage.message import PlanWord
    from spillway.producers.connection import ClientSettings

log = logging.getLogger(__name__)

_CONNECT: Final = 10.0  # seconds


class _Listening(Closing):
    """Reads a topic of a pipeline."""

    _reading: Reading

    def __init__(self, settings: ClientSettings, pipeline: str, limits: Limits) -> None:
        """Raises BrokerError, TopicError."""
        self._schemas = SchemaLog(settings, pipeline, timeout=_CONNECT)
        self._decoder = Decoder(limits, self._schemas.open())

    def close(self) -> None:
        self._reading.close()


class Words(_Listening):
    """The words on `<p>.plan` that are said from now on. A context. One that cannot be read is passed over."""

    def __init__(self, settings: ClientSettings, pipeline: str, limits: Limits) -> None:
        super().__init__(settings, pipeline, limits)
        slots = slots_of(settings, plan(pipeline), _CONNECT)
        self._reading = Reading(settings, slots, from_end=True, patience=_CONNECT)

    def take(self) -> Iterator[PlanWord]:
        """Those that have come."""
        for record in self._reading.read(0.0):
            if record.value is not None:
                try:
                    yield decoded(self._decoder.word, record.value, self._schemas.relearn)
                except WireError as error:
                    log.debug("a word cannot be read: %s", error)


class Released(_Listening):
    """The outcomes of one job on `<p>.egress`, from a time on. A context."""

    def __init__(self, settings: ClientSettings, pipeline: str, limits: Limits, prefix: str, since: float) -> None:
        """`prefix` begins the job's request ids; `since`: unix seconds. Raises BrokerError, TopicError."""
        super().__init__(settings, pipeline, limits)
        self._prefix = prefix
        self._reading = Reading(settings, slots_of(settings, egress(pipeline), _CONNECT), since=since)

    def to_the_end(self) -> Iterator[tuple[str, Outcome]]:
        """What has come since the beginning, or since this was asked before, with the request ids."""
        for record in self._reading.to_the_end():
            request_id = identify(record.headers)
            if request_id.startswith(self._prefix):
                try:
                    outcome = decoded(self._decoder.released, record.value or b"", self._schemas.relearn)
                except WireError as unreadable:
                    outcome = Outcome(FAILED, {}, unreadable.reason, f"its outcome cannot be read: {unreadable}")
                yield request_id, outcome
