"""A broker that has just begun runs code that is not compiled yet: a state of 13 MB takes it three times as long.

So it is given work of that kind before anything is compared, or the first modes would look worse than the last ones.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient, NewTopic

from spillway.agents.live.states.sending import Sending
from spillway.checkpoint.layout import CHUNK_BYTES
from spillway.topology.topics import STATE_BYTES

if TYPE_CHECKING:
    from spillway.producers.connection import ClientSettings

_TOPIC = "bench-warm-up"
_CHUNKS = 6_000  # 1.5 GB, some seconds
_WITHIN = 30.0


def warm(settings: ClientSettings) -> None:
    admin = AdminClient({**settings.confluent(), "log_level": 2})
    topic = NewTopic(_TOPIC, 1, 1, config={"max.message.bytes": str(STATE_BYTES)})
    admin.create_topics([topic])[_TOPIC].result(_WITHIN)
    sending = Sending(settings, _TOPIC)
    chunk = os.urandom(CHUNK_BYTES)
    for number in range(_CHUNKS):
        sending.send(_TOPIC, 0, b"%d" % number, chunk)
    while sending.in_flight:
        sending.serve()
    admin.delete_topics([_TOPIC])[_TOPIC].result(_WITHIN)
