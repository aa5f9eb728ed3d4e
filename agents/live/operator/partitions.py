"""Partitions of a pipeline's topics, read by somebody who belongs to no group and leaves nothing behind.

`unread` holds the partitions whose end has not been reached; it only shrinks. What is appended later is read as well.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Self

from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

from spillway.lineage.errors import BrokerError, TopicError
from spillway.producers.cluster import Reader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from spillway.producers.connection import ClientSettings

PATIENCE: Final = 30.0  # seconds without anything, after which a cluster is given up
_AT_ONCE: Final = 500
_POLL_SECONDS: Final = 0.1

Partition = tuple[str, int]


class Partitions:
    """Reads some partitions from their beginnings, their ends, or a time on. Raises BrokerError, TopicError."""

    def __init__(
        self,
        settings: ClientSettings,
        partitions: Iterable[Partition],
        *,
        from_end: bool = False,
        since: float | None = None,
    ) -> None:
        """`since`: unix seconds; records that were written earlier are passed over."""
        wanted = list(partitions)
        self.unread: set[Partition] = set(wanted)
        self._where = settings.bootstrap
        self._reader = Reader(settings, {"enable.partition.eof": True, "fetch.wait.max.ms": 50})
        try:
            for topic, count in Counter(topic for topic, _ in wanted).items():
                self._check(topic, max(number for name, number in wanted if name == topic), count)
            # An offset of the cluster's, asked for now: what is appended after this constructor will be read.
            starts = self._ends(wanted) if from_end else self._since(wanted, since) if since is not None else {}
            self._reader.consumer.assign([TopicPartition(*each, starts.get(each, OFFSET_BEGINNING)) for each in wanted])
        except BaseException:
            self.close()
            raise

    def read(self, seconds: float = _POLL_SECONDS) -> list[Any]:
        """What has come, after at most so many seconds; each partition's records in order."""
        found, ended = [], []
        for message in self._reader.consumer.consume(_AT_ONCE, seconds):
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own code
                ended.append((message.topic(), message.partition()))
            elif error.fatal() or error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise BrokerError(f"cannot read {message.topic()} on {self._where}: {error.str()}")
        self.unread.difference_update(ended)
        return found

    def to_the_end(self) -> Iterator[Any]:
        heard = time.monotonic()
        while self.unread:
            messages = self.read()
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > PATIENCE:
                topic, number = min(self.unread)
                raise BrokerError(f"{topic}[{number}] on {self._where} could not be read to its end")
            yield from messages

    def leave(self, partition: Partition) -> None:
        """Read no more of a partition, whose end then counts as reached; what came with this read may still follow."""
        if partition in self.unread:
            self.unread.discard(partition)
            self._reader.consumer.incremental_unassign([TopicPartition(*partition)])

    def close(self) -> None:
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _check(self, topic: str, highest: int, count: int) -> None:
        there = self._reader.partitions(topic, PATIENCE)
        if highest >= there:
            raise TopicError(
                f"topic {topic} on {self._where} has {there} partitions, but {max(count, highest + 1)} are needed: is "
                "the pipeline file the one that it is served from?"
            )

    def _since(self, wanted: list[Partition], at: float) -> dict[Partition, int]:
        return {(each.topic, each.partition): each.offset for each in self._reader.since(wanted, at, PATIENCE)}

    def _ends(self, wanted: list[Partition]) -> dict[Partition, int]:
        highest: dict[str, int] = {}
        for topic, number in wanted:
            highest[topic] = max(number, highest.get(topic, 0))
        return {
            (each.topic, each.partition): each.offset
            for topic, number in highest.items()
            for each in self._reader.ends(topic, number + 1, PATIENCE)
        }
