"""Whether a shard is served: its members' heartbeats tell, while our own probes come back (rule 13).

The judgement is that of a backup over a silent primary (`checkpoint.silence`), over any member instead of one: a shard
is not served if for a whole lease no member of it was heard while every probe came back in time. So a broker that
stalls makes nobody look dead. A member that was stopped for longer than a lease looks dead as well, as it does to its
own backups; what it appends when it goes on is void behind the operator's fence.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from agents.live.operator.partitions import PATIENCE, Partitions
from checkpoint.leases import Lease
from checkpoint.silence import Watch
from lineage.errors import BrokerError, WireError
from lineage.ids import new_request_id
from lineage.replication import Beat
from lineage.values.replication import ReplicationDecoder, encode
from producers.cluster import idempotent_producer
from topology import topics

if TYPE_CHECKING:
    from lineage.marks import Place
    from producers.connection import ClientSettings
    from topology.spec import PipelineSpec

ROLE: Final = "operator"
_WAITING: Final = 120.0  # seconds for a lease in which all probes come back in time: a busy machine delays some
_MEMBERS: Final = "its members"  # whom we watch: all of them as one


class _Look:
    """One look at a shard."""

    def __init__(self, settings: ClientSettings, spec: PipelineSpec, place: Place) -> None:
        self.heard: Beat | None = None
        self._place = place
        self._name = f"operator-{new_request_id()[:12]}"
        self._topic = topics.beat(spec.name)
        self._decoder = ReplicationDecoder()
        self._lease = Lease(spec.stage(place[0]).lease)
        self._partitions = Partitions(settings, [(self._topic, 0)], from_end=True)
        self._producer = idempotent_producer(settings, self._topic, PATIENCE, {"linger.ms": 0})
        self._sequence = 0

    def run(self) -> Beat | None:
        """Wait for a beat, or for a lease without one. Raises BrokerError where probes do not come back in time."""
        began = time.monotonic()
        watch = Watch(self._lease, _MEMBERS, began)
        due = began
        while True:
            now = time.monotonic()
            if now - began > _WAITING + self._lease.seconds:
                raise BrokerError(f"{self._topic}: probes do not come back in time; is the broker overloaded?")
            if now >= due:
                due = now + self._lease.beat
                self._probe(watch, now)
            for message in self._partitions.read(min(0.02, self._lease.beat)):
                if self._take(watch, message):
                    return self.heard

    def close(self) -> None:
        self._producer.flush(1)
        self._partitions.close()

    def _probe(self, watch: Watch, now: float) -> None:
        self._sequence += 1
        beat = Beat(*self._place, self._name, 0, ROLE, self._sequence, time.time_ns() // 1_000)
        watch.probe_sent(now, self._sequence)
        self._producer.produce(self._topic, encode(beat), self._name, 0)
        self._producer.poll(0)

    def _take(self, watch: Watch, message: Any) -> bool:
        try:
            beat = self._decoder.beat(message.value() or b"")
        except WireError:  # of another release, or none: nobody can say whose it is
            return False
        if (beat.stage, beat.shard) != self._place:
            return False
        if beat.member == self._name:
            return watch.probe_returned(time.monotonic(), beat.sequence)
        if beat.role == ROLE:
            return False
        self.heard = beat
        return True


def member_heard(settings: ClientSettings, spec: PipelineSpec, place: Place) -> Beat | None:
    """A heartbeat of a member of the shard; None after a lease without one. Raises BrokerError, TopicError."""
    look = _Look(settings, spec, place)
    try:
        return look.run()
    finally:
        look.close()
