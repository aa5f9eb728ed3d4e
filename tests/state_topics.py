"""Everything that a pipeline with states has written to its topics: read while it runs, or afterwards.

A recorder that starts before the pipeline sees every record, whatever compaction takes away later. Only what is
committed is read: what a transaction has given up was never there.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from spillway.producers.connection import ClientSettings
from spillway.topology import topics
from tests.waiting import Bound

if TYPE_CHECKING:
    from spillway.topology.load import Pipeline

_QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0}


@dataclass(frozen=True, slots=True)
class Written:
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]
    at_ms: int  # when its producer was given it


@dataclass
class Recording:
    """All records of a pipeline's topics, in order within a partition.

    `whole`: nothing had been compacted away before it was read.
    """

    pipeline: Pipeline
    topics: dict[str, list[Written]] = field(default_factory=lambda: defaultdict(list))
    whole: bool = True

    def left(self, topic: str, partition: int) -> dict[bytes, Written]:
        """What the newest record of each key of a compacted topic is, tombstones included, in order of offsets."""
        newest = {record.key or b"": record for record in self.of(topic, partition)}
        return dict(sorted(newest.items(), key=lambda item: item[1].offset))

    def of(self, topic: str, partition: int) -> list[Written]:
        return [record for record in self.topics.get(topic, ()) if record.partition == partition]


def recorded_topics(pipeline: Pipeline) -> dict[str, int]:
    """The topics that the oracle looks at, and how many partitions they have."""
    left_out = {topics.beat(pipeline.spec.name), topics.plan(pipeline.spec.name), topics.schemas(pipeline.spec.name)}
    plan = topics.topic_plan(pipeline.spec)
    return {topic.name: topic.partitions for topic in plan if topic.name not in left_out}


class Recorder:
    """Reads the topics of a pipeline, which exist, from their beginning, in a thread of its own until `finish`."""

    def __init__(self, bootstrap: str, pipeline: Pipeline, *, whole: bool = True) -> None:
        self.recording = Recording(pipeline, whole=whole)
        self._settings = {**ClientSettings(bootstrap=bootstrap).confluent(), **_QUICK}
        self._places = [(topic, p) for topic, count in recorded_topics(pipeline).items() for p in range(count)]
        self._at = dict.fromkeys(self._places, 0)  # the offset that is read next, gaps of transactions counted
        self._ends: dict[tuple[str, int], int] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self, within: float = 30.0) -> Recording:
        """Read up to where every topic ends now, and give what was read."""
        self._ends = self._read_ends(within)
        self._thread.join(within)
        self._stop.set()
        behind = [f"{topic}[{p}]" for (topic, p), end in self._ends.items() if self._at[topic, p] < end]
        assert not self._thread.is_alive(), f"not read to their end within {within:g} s: {', '.join(behind)}"
        return self.recording

    def close(self) -> None:
        self._stop.set()
        self._thread.join(10)

    def _run(self) -> None:
        consumer = Consumer(
            {
                **self._settings,
                "group.id": "recorder",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 100,
            }
        )
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for topic, p in self._places])
        try:
            while not self._stop.is_set() and not self._through():
                for message in consumer.consume(2_000, 0.1):
                    place = message.topic(), message.partition()
                    if message.error() is not None:
                        if message.offset() is not None and message.offset() > 0:  # the end of the partition
                            self._at[place] = max(self._at[place], message.offset())
                        continue
                    self._at[place] = message.offset() + 1
                    self.recording.topics[message.topic()].append(
                        Written(
                            message.partition(),
                            message.offset(),
                            message.key(),
                            message.value(),
                            message.headers() or [],
                            message.timestamp()[1],
                        )
                    )
        finally:
            consumer.close()

    def _through(self) -> bool:
        return self._ends is not None and all(self._at[place] >= end for place, end in self._ends.items())

    def _read_ends(self, within: float) -> dict[tuple[str, int], int]:
        admin = AdminClient(self._settings)
        bound = Bound(within)
        while True:
            wanted = {TopicPartition(topic, p): OffsetSpec.latest() for topic, p in self._places}
            try:
                futures = admin.list_offsets(wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=5.0)
                return {(place.topic, place.partition): f.result().offset for place, f in futures.items()}
            except KafkaException:  # a broker that is not back yet
                assert not bound.over, f"the ends of the topics could not be asked within {within:g} s"


def gather(bootstrap: str, pipeline: Pipeline, *, whole: bool = True) -> Recording:
    return Recorder(bootstrap, pipeline, whole=whole).finish()
