"""The logs of a stateful stage on a real broker, and a listener that keeps what it is told."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from agents.broker import EmbeddedBroker
from agents.cli.options import cache_dir
from agents.live.states.worker import Mailbox
from producers.connection import ClientSettings
from tests.waiting import BROKER_SECONDS, PATIENT_SECONDS, Bound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STAGE = "learn"
PLACE = (STAGE, 0)
_COMPACT = {"cleanup.policy": "compact", "max.message.bytes": str(1 << 20)}


class Told:
    """What a `LogReader` posts, in order; each call is taken by the test's own thread."""

    def __init__(self) -> None:
        self.mailbox = Mailbox()
        self.calls: list[tuple] = []
        self.times: list[float] = []
        self.error: Exception | None = None

    post = property(lambda self: self.mailbox.post)

    def records(self, batch):
        self.times += [time.monotonic()] * len(batch)
        self.calls += [("record", read.place, read.record, read.key) for read in batch]

    def caught_up(self, place):
        self.calls.append(("caught_up", place))

    def fell_behind(self, place):
        self.calls.append(("fell_behind", place))

    def failed(self, error):
        self.error = error

    def of(self, kind):
        return [call for call in self.calls if call[0] == kind]

    def until(self, condition: Callable[[], object], seconds: float = 90.0) -> None:
        """Deliver what is posted until a condition holds."""
        bound = Bound(seconds)
        while not condition():
            assert self.error is None, self.error
            assert not bound.over, self.calls[-5:]
            if not self.mailbox.deliver():
                time.sleep(0.001)


class Bench:
    """A pipeline's topics for one stateful stage."""

    def __init__(self, bootstrap: str, pipeline: str, shards: int = 1) -> None:
        self.settings = ClientSettings(bootstrap=bootstrap)
        self.pipeline = pipeline
        topics = {f"{pipeline}.{STAGE}.{kind}": shards for kind in ("versions", "state")}
        admin = AdminClient({"bootstrap.servers": bootstrap})
        wanted = [NewTopic(name, count, 1, config=_COMPACT) for name, count in topics.items()]
        wanted += [NewTopic(f"{pipeline}.control", 1, 1, config=_COMPACT), NewTopic(f"{pipeline}.beat", 1, 1)]
        for future in admin.create_topics(wanted).values():
            future.result(PATIENT_SECONDS)
        self.closing: list = []

    def keep(self, what):
        """Close something with the test."""
        self.closing.append(what)
        return what

    def records(self, kind: str, partition: int = 0) -> list[tuple[bytes, bytes | None]]:
        """All records of the stage's state or versions topic."""
        consumer = Consumer(
            {"bootstrap.servers": self.settings.bootstrap, "group.id": "look", "enable.partition.eof": True}
        )
        consumer.assign([TopicPartition(f"{self.pipeline}.{STAGE}.{kind}", partition, 0)])
        found = []
        while (message := consumer.poll(90.0)) is not None:
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                break
            found.append((message.key(), message.value()))
        consumer.close()
        return found

    def close(self) -> None:
        for what in reversed(self.closing):
            what.close()
        alive = [thread.name for thread in threading.enumerate() if thread.name in {"version-logs", "appends"}]
        assert not alive


@pytest.fixture
def bench(broker: str, unique_name: str) -> Iterator[Bench]:
    """The topics of one stage with one shard on the session's broker."""
    made = Bench(broker, unique_name)
    yield made
    made.close()


@pytest.fixture
def own_broker(tmp_path) -> Iterator[EmbeddedBroker]:
    """A broker that the test may restart."""
    with EmbeddedBroker(tmp_path / "kafka", cache_dir=cache_dir(), start_timeout=BROKER_SECONDS) as running:
        yield running
