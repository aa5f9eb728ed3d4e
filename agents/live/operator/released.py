"""The outcome of one query, looked up on a pipeline's egress, for as long as its retention keeps it (a day)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.lineage import headers as wire
from spillway.lineage.limits import DEFAULT_LIMITS
from spillway.lineage.values.codec import Decoder
from spillway.producers.kafka.reading import Reading, slots_of
from spillway.producers.schema_log import known_schemas
from spillway.topology import topics

if TYPE_CHECKING:
    from spillway.lineage.limits import Limits
    from spillway.lineage.message import Outcome
    from spillway.producers.connection import ClientSettings


def released(
    settings: ClientSettings, pipeline: str, request_id: str, limits: Limits = DEFAULT_LIMITS
) -> Outcome | None:
    """The newest outcome of that request id; None where there is none. Raises BrokerError, TopicError, WireError."""
    slots = slots_of(settings, topics.egress(pipeline))
    schemas = known_schemas(settings, pipeline)
    found = None
    with Reading(settings, slots) as reading:
        for record in reading.to_the_end():
            if wire.identify(record.headers) == request_id:
                found = record
    if found is None:
        return None
    outcome = Decoder(limits, schemas).released(found.value or b"")
    outcome.request_id = request_id
    return outcome
