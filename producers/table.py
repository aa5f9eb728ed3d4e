"""A compacted topic as a table: the newest value of each key, read to the topic's end and then followed.

A key whose newest record has no value is not in the table. The table knows nothing of what its values mean.
"""

from __future__ import annotations

import logging
import math
import threading
from typing import TYPE_CHECKING, Final, Self

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from spillway.lineage.errors import BrokerError, SpillwayError
from spillway.producers.cluster import Reader, idempotent_producer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import Any

    from spillway.producers.connection import ClientSettings

log = logging.getLogger(__name__)

READ_SECONDS: Final = 5.0  # for a read to the end
_CONNECT: Final = 3.0  # less than a read may take, so that its error says that no broker answers
_POLL: Final = 0.1
_WAIT_MS: Final = 1000  # at the broker, which answers as soon as there is a record
_AT_ONCE: Final = 500
_QUIET: Final = 5.0  # seconds without a record after which the broker is asked whether it is there
_ASK: Final = 1.0
_AGAIN: Final = 1.0  # between two attempts


class Table:
    """Reads one topic in a thread of its own, from `start` to `close`. A context, which does both.

    `changed(key, value)` is called on that thread with each record that changes the table, None for a key that is gone;
    it must not raise. A broker that is away stops nothing: the thread tries again.
    """

    def __init__(
        self,
        settings: ClientSettings,
        topic: str,
        changed: Callable[[bytes, bytes | None], None] = lambda _key, _value: None,
        partitions: Collection[int] | None = None,
    ) -> None:
        """`partitions`: those that are read; None: all."""
        self._settings = settings
        self._topic = topic
        self._changed = changed
        self._partitions = partitions
        self._lock = threading.Lock()  # of which partitions are read, and whether to the end
        self._rows: dict[bytes, bytes] = {}
        self._read = threading.Event()  # to the end
        self._met = threading.Event()  # read to the end, or failed to, once
        self._stop = threading.Event()
        self._trouble: SpillwayError | None = None
        self._thread = threading.Thread(target=self._run, name=f"table-{topic}", daemon=True)

    def start(self) -> Self:
        self._thread.start()
        return self

    def close(self, timeout: float = 2.0) -> None:
        self._stop.set()
        self._thread.join(timeout)

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
            raise self._trouble or BrokerError(
                f"{self._topic} on {self._settings.bootstrap} could not be read to its end within {timeout:g} s"
            )
        return self._rows.copy()

    def follow(self, partitions: Collection[int]) -> None:
        """Read these partitions from now on.

        Where they are others than before, all are read anew, from the beginning; what others had goes after that.
        """
        with self._lock:
            if self._partitions is None or set(partitions) != set(self._partitions):
                self._partitions = partitions
                self._read.clear()

    # On the table's thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow()
            except Exception as error:  # also of whom it tells: a table that stands still would say that it is whole
                self._read.clear()
                known = isinstance(error, SpillwayError | KafkaException)
                if str(error) != str(self._trouble):
                    log.warning("%s cannot be read; trying again: %s", self._topic, error, exc_info=not known)
                self._trouble = error if isinstance(error, SpillwayError) else BrokerError(str(error))
                self._met.set()
                self._stop.wait(_AGAIN)

    def _follow(self) -> None:
        """Read from the beginning until told to stop, or to read others. Raises where it cannot begin, or go on."""
        partitions = self._partitions
        reader = Reader(
            self._settings,
            {"enable.partition.eof": True, "auto.offset.reset": "earliest", "fetch.wait.max.ms": _WAIT_MS},
        )
        try:
            count = reader.partitions(self._topic, _CONNECT)
            wanted = [number for number in range(count) if partitions is None or number in partitions]
            ends = {end.partition: end.offset for end in reader.ends(self._topic, count, _CONNECT)}
            unread = {number: ends[number] for number in wanted if ends[number]}
            reader.assign([TopicPartition(self._topic, number, OFFSET_BEGINNING) for number in wanted])
            present = set[bytes]()
            while not self._stop.is_set() and self._partitions is partitions:
                for message in reader.read(_POLL, _AT_ONCE):
                    self._take(message, unread, present)
                if not unread and self.stale:
                    self._at_end(partitions, present)
                reader.heed(_QUIET, _ASK)
        finally:
            reader.close()

    def _at_end(self, partitions: Collection[int] | None, present: set[bytes]) -> None:
        """What is known and was not there: it was compacted away while nobody read, or is of other partitions."""
        for key in self._rows.keys() - present:
            self._put(key, None)
        with self._lock:
            if self._partitions is partitions:
                self._trouble = None
                self._read.set()
                self._met.set()

    def _take(self, message: Any, unread: dict[int, int], present: set[bytes]) -> None:
        """A partition is read once its last record has come, or, as that one may be gone, once its end is told."""
        error = message.error()
        if error is None:
            key, value = message.key() or b"", message.value()
            if self.stale:
                (present.discard if value is None else present.add)(key)
            self._put(key, value)
            if message.offset() + 1 >= unread.get(message.partition(), math.inf):
                del unread[message.partition()]
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own codes
            unread.pop(message.partition(), None)
        elif not error.retriable() and error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
            raise KafkaException(error)

    def _put(self, key: bytes, value: bytes | None) -> None:
        if self._rows.get(key) == value:
            return
        if value is None:
            del self._rows[key]
        else:
            self._rows[key] = value
        self._changed(key, value)


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
