"""A stand-in for a pipeline: answers whatever comes into an ingress, in a thread, as a test tells it to."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from lineage.headers import decode
from lineage.message import PREDICTION, Outcome, StageTiming
from lineage.values.codec import Decoder, encode_outcome
from producers.connection import TRANSACTIONAL

from .gate_bench import GateBench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lineage.headers import Headers
    from lineage.message import Query


def make_topics(bootstrap: str, partitions: dict[str, int], **config: str) -> None:
    """Create topics and wait until they are there."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [NewTopic(name, count, 1, config=config) for name, count in partitions.items()]
    for future in admin.create_topics(wanted).values():
        future.result(30)


def echo(query: Query, _headers: Headers) -> list[Outcome]:
    """Answer with what was asked."""
    timing = StageTiming("echo", 0.001, 0.002, 0.01, 2, "Echo", "1")
    return [Outcome(PREDICTION, dict(query.inputs), stage="echo", timings=[timing])]


class EchoPipeline:
    """Reads `<name>.ingress`, gives each query to `answer`, writes what that returns to `<name>.egress`."""

    def __init__(
        self,
        bootstrap: str,
        name: str,
        answer: Callable[[Query, Headers], list[Outcome]] = echo,
        *,
        partitions: int = 4,
        transactional: bool = False,
    ) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.answer = answer
        self.partitions = partitions
        self.transactional = transactional
        self.heard: list[tuple[Headers, int, bytes]] = []  # headers, partition, key of every query, in order
        self.error: BaseException | None = None
        make_topics(bootstrap, {f"{name}.ingress": partitions, f"{name}.egress": partitions, f"{name}.schemas": 1})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._guarded, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 - the test is told when it closes the pipeline
            self.error = error

    def _run(self) -> None:
        quick = {"bootstrap.servers": self.bootstrap, "reconnect.backoff.max.ms": 500}
        consumer = Consumer({**quick, "group.id": "echo", "enable.auto.commit": False})
        consumer.assign([TopicPartition(f"{self.name}.ingress", n, 0) for n in range(self.partitions)])
        steady = {"transactional.id": f"{self.name}.gate", **TRANSACTIONAL}
        identity = steady if self.transactional else {"acks": "all"}
        producer = Producer({**quick, **identity, "linger.ms": 0})
        if self.transactional:
            producer.init_transactions(30)
        while not self._stop.is_set():
            messages = [first, *consumer.consume(500, 0)] if (first := consumer.poll(0.05)) is not None else []
            taken = [message for message in messages if message.error() is None]
            if self.transactional and taken:
                producer.begin_transaction()
            for message in taken:
                self._take(producer, message)
            if self.transactional and taken:
                producer.commit_transaction(30)
            producer.poll(0)
        producer.flush(10)
        consumer.close()

    def _take(self, producer: Producer, message: object) -> None:
        pairs = message.headers()
        headers = decode(pairs)
        self.heard.append((headers, message.partition(), message.key()))
        for outcome in self.answer(Decoder().query(message.value()), headers):
            producer.produce(
                f"{self.name}.egress", encode_outcome(outcome), message.key(), message.partition(), headers=pairs
            )


@pytest.fixture
def echo_pipeline(broker: str, unique_name: str) -> Iterator[Callable[..., EchoPipeline]]:
    """Starts pipelines that answer as told; they end with the test."""
    started: list[EchoPipeline] = []

    def start(answer: Callable[[Query, Headers], list[Outcome]] = echo, **options: object) -> EchoPipeline:
        bootstrap = str(options.pop("bootstrap", broker))
        started.append(EchoPipeline(bootstrap, f"{unique_name}.{len(started)}", answer, **options))
        return started[-1]

    yield start
    for pipeline in started:
        pipeline.close()


@pytest.fixture
def await_true() -> Callable[..., None]:
    """Polls a condition until it holds, at most so many seconds."""

    def await_it(condition: Callable[[], object], seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come to hold in time"
            time.sleep(0.01)

    return await_it


@pytest.fixture
def make_gate(broker, unique_name, tmp_path):
    """Builds a `GateBench`: the topics of a pipeline whose stages the test plays."""
    made = []

    def build(stages: str = '  - {name: a, model: "m:M"}', sinks: str = "") -> GateBench:
        made.append(GateBench(broker, unique_name, tmp_path, stages, sinks))
        return made[-1]

    yield build
    for bench in made:
        bench.close()
