"""The replies of a pipeline, shared among its clients: each reads a part of the egress.

A consumer group says whose partitions are whose, and does nothing else: nothing is read or committed by it. So nothing
depends on its rebalances. A client that has lost a partition, or the whole group, goes on with the share that it had
until it hears of another; meanwhile two may read the same partition, which harms nobody.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, TopicPartition

from spillway.lineage.keys import partition_for
from spillway.producers.client.partitions import Partitions
from spillway.topology.topics import egress, replies

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from confluent_kafka import KafkaError

    from spillway.producers.client.queries import Prepared
    from spillway.producers.cluster import Reader
    from spillway.producers.connection import ClientSettings

log = logging.getLogger(__name__)

_SESSION_MS: Final = 8_000
_HEARTBEAT_MS: Final = 2_000
_OUT_SECONDS: Final = 20.0  # of the group, after which another client joins it (docs/kafka-notes.md)
_END_SECONDS: Final = 0.2  # a turn to ask for ends: neither expiries nor outcomes are looked at meanwhile
_GROUP_SECONDS: Final = 0.1  # between two looks at what the group says


class GroupMember:
    """A member of a group that only assigns. For one thread, which calls `poll` every now and then."""

    def __init__(self, settings: ClientSettings, group: str, topic: str, assigned: Callable[[list[int]], None]) -> None:
        """`assigned` is called from within `poll` with the partitions of each assignment."""
        self._settings = settings
        self._group = group
        self._topic = topic
        self._assigned = assigned
        self._trouble: set[int] = set()  # the codes that were logged since it had its share
        self._consumer: Any = None
        self._join()

    def poll(self, now: float) -> None:
        message = self._consumer.poll(0)
        if message is not None and message.error() is not None:
            self._heed(message.error())
        if self._out_since is not None and now - self._out_since >= _OUT_SECONDS:
            # Closing may wait for a coordinator that is not there.
            threading.Thread(target=self._consumer.close, name=f"{self._group} left", daemon=True).start()
            self._join()

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def _join(self) -> None:
        self._out_since: float | None = time.monotonic()
        self._consumer = Consumer(
            {
                "group.id": self._group,
                "partition.assignment.strategy": "roundrobin",
                "session.timeout.ms": _SESSION_MS,
                "heartbeat.interval.ms": _HEARTBEAT_MS,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "allow.auto.create.topics": False,
                "error_cb": self._heed,
                **self._settings.confluent(),
            },
            logger=log,
        )
        self._consumer.subscribe([self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke)

    def _on_assign(self, consumer: Any, places: Sequence[TopicPartition]) -> None:
        consumer.assign([])  # accepted, and not read
        if consumer is self._consumer:
            self._out_since = None
            self._trouble.clear()
            self._assigned([place.partition for place in places])

    def _on_revoke(self, consumer: Any, _places: Sequence[TopicPartition]) -> None:
        if consumer is self._consumer and self._out_since is None:
            self._out_since = time.monotonic()

    def _heed(self, error: KafkaError) -> None:
        """Log each thing once that keeps this client out of its group; it goes on with partitions that it borrows."""
        if error.code() not in self._trouble:
            self._trouble.add(error.code())
            level = logging.DEBUG if error.retriable() else logging.WARNING
            log.log(level, "%s: this client has no part of the replies of its own: %s", self._group, error.str())


class SharedReplies:
    """What one client reads of the egress. `turn` and `close` are for the reply thread, the rest for any."""

    def __init__(self, settings: ClientSettings, pipeline: str, reader: Reader, count: int) -> None:
        """Join the group of the readers of an egress of `count` partitions. Raises BrokerError."""
        self._topic = egress(pipeline)
        self._reader = reader
        self._lock = threading.Lock()
        self._partitions = Partitions(count)
        self._refused: dict[int, float] = {}  # when a partition's end was asked in vain
        self._poll_at = 0.0
        self._member = GroupMember(settings, replies(pipeline), self._topic, self._assigned)

    def landing(self) -> tuple[Collection[int], int]:
        """The partitions for queries that may go anywhere, and how many there are in all."""
        with self._lock:
            return self._partitions.preferred, self._partitions.count

    @property
    def may_hold(self) -> bool:
        """Whether a query may have to wait until a turn has its partition read; for the reply thread."""
        return not self._partitions.whole

    def partition(self, key: bytes) -> int:
        return partition_for(key, self._partitions.count)

    def admit(self, query: Prepared, partition: int) -> bool:
        """Await an outcome there; return whether to send the query now, else a later turn says so."""
        with self._lock:
            return self._partitions.admit(query, partition)

    def done(self, partition: int) -> None:
        with self._lock:
            self._partitions.done(partition)

    def turn(self, now: float, send: Callable[[Prepared], None]) -> None:
        """Start and stop reading partitions, and send the queries that waited for that."""
        if now >= self._poll_at:
            self._poll_at = now + _GROUP_SECONDS
            self._member.poll(now)
        with self._lock:
            wanted = self._partitions.to_start()
        self._start(sorted(wanted, key=lambda each: self._refused.get(each, 0.0)), now, send)
        with self._lock:
            stopped = self._partitions.to_stop(now)
        if stopped:
            self._reader.stop([TopicPartition(self._topic, each) for each in stopped])

    def close(self) -> None:
        self._member.close()

    def _start(self, wanted: Sequence[int], now: float, send: Callable[[Prepared], None]) -> None:
        for partition in wanted:
            bounds = self._reader.bounds(TopicPartition(self._topic, partition), _END_SECONDS)
            if bounds is None:
                self._refused[partition] = now  # the others come first next time
                return
            self._reader.start([TopicPartition(self._topic, partition, bounds.end)])
            self._release(partition, send)
            if time.monotonic() - now >= _END_SECONDS:
                return

    def _release(self, partition: int, send: Callable[[Prepared], None]) -> None:
        held = True
        while held:
            with self._lock:
                queries = self._partitions.release(partition)
            for query in queries:
                send(query)
            held = bool(queries)

    def _assigned(self, share: list[int]) -> None:
        log.debug("%s: partitions %s are this client's", self._topic, share)
        with self._lock:
            self._partitions.assign(share)
