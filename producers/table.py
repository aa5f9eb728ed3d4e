"""A compacted topic as a table: the newest value of each key, read to the topic's end and then followed.

A key whose newest record has no value is not in the table. The table knows nothing of what its values mean.
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from confluent_kafka import KafkaError, KafkaException

from spillway.lineage.errors import BrokerError
from spillway.producers.cluster import idempotent_producer
from spillway.producers.kafka.log import KafkaLog

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from typing import Any

    from spillway.lineage.ports import Bounds, Following, Record
    from spillway.producers.connection import ClientSettings

log = logging.getLogger(__name__)

READ_SECONDS: Final = 5.0  # for a read to the end


class Table:
    """Follows one topic from `start` to `close`. A context, which does both.

    `changed(key, value)` is called with each record that changes the table, None for a key that is gone; on the log's
    thread, so it must neither raise nor wait. A broker that is away stops nothing.
    """

    def __init__(
        self,
        source: ClientSettings | KafkaLog,
        topic: str,
        changed: Callable[[bytes, bytes | None], None] = lambda _key, _value: None,
        partitions: Collection[int] = (0,),
    ) -> None:
        """`source`: the log that follows it, or the cluster, for a table that has a log of its own."""
        self._source = source
        self._log: KafkaLog
        self._topic = topic
        self._changed = changed
        self._partitions = frozenset(partitions)
        self._lock = threading.RLock()  # of all that follows; what is read is read without
        self._followed: dict[int, Following] = {}
        self._unread: dict[int, set[bytes]] = {}  # partitions, with the keys that were known before reading them anew
        self._rows: dict[bytes, bytes] = {}
        self._partition_of: dict[bytes, int] = {}  # of the rows
        self._trouble: BrokerError | None = None
        self._read = threading.Event()  # to the end
        self._met = threading.Event()  # read to the end, or failed to, once

    def start(self) -> Self:
        self._log = self._source if isinstance(self._source, KafkaLog) else KafkaLog(self._source)
        self.follow(self._partitions)
        return self

    def close(self) -> None:
        with self._lock:
            for following in self._followed.values():
                following.stop()
            self._followed.clear()
        if self._log is not self._source:
            self._log.shut()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @property
    def stale(self) -> bool:
        """Whether the table was not read to the end that the topic had when reading last began."""
        return not self._read.is_set()

    def get(self, key: bytes) -> bytes | None:
        """A key's newest value, as far as it is known."""
        return self._rows.get(key)

    def wait(self, timeout: float = READ_SECONDS) -> None:
        """Wait until the table is read to its end, at most `timeout` seconds, whatever fails meanwhile."""
        self._read.wait(timeout)

    def rows(self, timeout: float = READ_SECONDS) -> dict[bytes, bytes]:
        """A copy of the table, once it is read to its end; as far as it is known, and `stale`, where it cannot be read.

        That is waited for at most `timeout` seconds.
        """
        self._met.wait(timeout)
        return self._rows.copy()

    def require(self, timeout: float = READ_SECONDS, *, patient: bool = False) -> dict[bytes, bytes]:
        """The same, for who needs all of it. Raises BrokerError that says why it cannot be read.

        `patient`: not at the first failure, but after `timeout` seconds, as where the topic has just been created.
        """
        (self._read if patient else self._met).wait(timeout)
        if self.stale:
            raise self._trouble or BrokerError(f"{self._topic} could not be read to its end within {timeout:g} s")
        return self._rows.copy()

    def follow(self, partitions: Collection[int]) -> None:
        """Read these partitions from now on. What others had goes."""
        with self._lock:
            for partition in self._followed.keys() - set(partitions):
                self._followed.pop(partition).stop()
                self._unread.pop(partition, None)
                self._drop(key for key, own in self._partition_of.items() if own == partition)
            for partition in set(partitions) - self._followed.keys():
                self._begin(partition)
            self._settle()

    # What comes ------------------------------------------------------------------------------------------------

    def _begin(self, partition: int) -> None:
        """Read a partition from its beginning. Keys that are known and do not come were compacted away meanwhile."""
        self._unread[partition] = {key for key, own in self._partition_of.items() if own == partition}
        self._settle()
        following = self._followed[partition] = self._log.follow(
            (self._topic, partition),
            None,
            partial(self._take, partition),
            cut=partial(self._cut, partition),
            trouble=partial(self._told, partition),
        )
        following.when_read(lambda _end: self._reached(partition, following))

    def _take(self, partition: int, records: Sequence[Record]) -> None:
        with self._lock:
            if partition not in self._followed:
                return
            for record in records:
                key = record.key or b""
                if partition in self._unread:
                    self._unread[partition].discard(key)
                self._put(key, record.value, partition)

    def _reached(self, partition: int, following: Following) -> None:
        with self._lock:
            if self._followed.get(partition) is following:
                self._drop(self._unread.pop(partition, set()))
                self._settle()

    def _cut(self, partition: int, _bounds: Bounds) -> None:
        with self._lock:
            if partition in self._followed:
                log.warning("%s[%d] does not have what comes next: reading it anew", self._topic, partition)
                self._followed[partition].stop()
                self._begin(partition)

    def _told(self, partition: int, error: BrokerError) -> None:
        with self._lock:
            if partition not in self._followed:
                return
            log.warning("%s cannot be read; trying again: %s", self._topic, error)
            self._trouble = error
            self._met.set()
            if partition not in self._unread:
                self._followed[partition].stop()
                self._begin(partition)

    def _settle(self) -> None:
        if self._unread:
            self._read.clear()
        else:
            self._trouble = None
            self._read.set()
            self._met.set()

    def _drop(self, keys: Iterable[bytes]) -> None:
        for key in tuple(keys):
            self._put(key, None, -1)

    def _put(self, key: bytes, value: bytes | None, partition: int) -> None:
        if self._rows.get(key) == value:
            return
        if value is None:
            del self._rows[key], self._partition_of[key]
        else:
            self._rows[key], self._partition_of[key] = value, partition
        self._changed(key, value)


class Follower:
    """Who makes something of a table: it follows that while the context is open."""

    _table: Table

    def __enter__(self) -> Self:
        self._table.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._table.close()

    @property
    def stale(self) -> bool:
        return self._table.stale


def write(settings: ClientSettings, topic: str, rows: Mapping[bytes, bytes | None], timeout: float = 30.0) -> None:
    """Write records and wait until the broker has them. Raises BrokerError where it is not known that it has."""
    failures: list[str] = []

    def reported(error: KafkaError | None, _message: Any) -> None:
        if error is not None:
            failures.append(error.str())

    options = {"linger.ms": 0, "message.timeout.ms": int(timeout * 1000)}
    producer = idempotent_producer(settings, topic, timeout, options)
    try:
        for key, value in rows.items():
            producer.produce(topic, value, key, on_delivery=reported)
    except KafkaException as error:
        failures.append(error.args[0].str())
    left = producer.flush(timeout)
    if failures or left:
        why = failures[0] if failures else "no acknowledgement in time"
        raise BrokerError(f"cannot write to {topic} at {settings.bootstrap}: {why}")
