"""The outcome of one query, looked up on a pipeline's egress, for as long as its retention keeps it (a day)."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from spillway.agents.live.operator.partitions import PATIENCE, Partitions
from spillway.lineage import headers as wire
from spillway.lineage.limits import DEFAULT_LIMITS
from spillway.lineage.values.codec import Decoder
from spillway.producers.cluster import Reader
from spillway.producers.kafka.records import header_pairs
from spillway.producers.schema_log import SchemaLog
from spillway.topology import topics

if TYPE_CHECKING:
    from spillway.lineage.limits import Limits
    from spillway.lineage.message import Outcome
    from spillway.producers.connection import ClientSettings


def released(
    settings: ClientSettings, pipeline: str, request_id: str, limits: Limits = DEFAULT_LIMITS
) -> Outcome | None:
    """The newest outcome of that request id; None where there is none. Raises BrokerError, TopicError, WireError."""
    topic = topics.egress(pipeline)
    with closing(Reader(settings, {})) as reader:
        count = reader.partitions(topic, PATIENCE)
    schemas = SchemaLog(settings, pipeline, timeout=PATIENCE)
    schemas.relearn()
    found = None
    with Partitions(settings, [(topic, number) for number in range(count)]) as reading:
        for message in reading.to_the_end():
            if wire.identify(header_pairs(message)) == request_id:
                found = message
    if found is None:
        return None
    outcome = Decoder(limits, schemas.book).released(found.value() or b"")
    outcome.request_id = request_id
    return outcome
