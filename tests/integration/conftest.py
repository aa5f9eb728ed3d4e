"""A stand-in for a pipeline: answers whatever comes into an ingress, in a thread, as a test tells it to."""

import threading

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from spillway.agents.broker import EmbeddedBroker
from spillway.agents.cli.options import cache_dir
from spillway.lineage.headers import decode
from spillway.lineage.message import PREDICTION, Outcome, StageTiming
from spillway.lineage.values.codec import Decoder, encode_outcome
from spillway.producers.connection import TRANSACTIONAL, ClientSettings
from tests.made_topics import make_all
from tests.waiting import BROKER_SECONDS

from .gate_bench import GateBench


def make_topics(bootstrap, partitions, **config):
    make_all(bootstrap, [NewTopic(name, count, 1, config=config) for name, count in partitions.items()])


def echo(query, _headers):
    timing = StageTiming("echo", 0.001, 0.002, 0.01, 2, "Echo", "1")
    return [Outcome(PREDICTION, dict(query.inputs), stage="echo", timings=[timing])]


class EchoPipeline:
    """Reads `<name>.ingress`, gives each query to `answer`, writes what that returns to `<name>.egress`."""

    def __init__(self, bootstrap, name, answer=echo, *, partitions=4, transactional=False):
        self.name = name
        self.bootstrap = bootstrap
        self.answer = answer
        self.partitions = partitions
        self.transactional = transactional
        self.heard = []  # headers, partition, key of every query, in order
        self.error = None
        make_topics(bootstrap, {f"{name}.ingress": partitions, f"{name}.egress": partitions, f"{name}.schemas": 1})
        self._quick = {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 500}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._guarded, daemon=True)
        self._thread.start()

    def close(self):
        self._stop.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _guarded(self):
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 - the test is told when it closes the pipeline
            self.error = error

    def _run(self):
        consumer = Consumer({**self._quick, "group.id": "echo", "enable.auto.commit": False})
        consumer.assign([TopicPartition(f"{self.name}.ingress", n, 0) for n in range(self.partitions)])
        producer = self._connect()
        ended = True
        while not self._stop.is_set():
            messages = [first, *consumer.consume(500, 0)] if (first := consumer.poll(0.05)) is not None else []
            answers = [answer for message in messages if message.error() is None for answer in self._take(message)]
            if answers:
                producer, ended = self._stand(producer, answers), not self.transactional
            elif not messages and not ended:
                producer, ended = self._stand(producer, self._unassigned()), True
            producer.poll(0)
        producer.flush(10)
        consumer.close()

    def _unassigned(self):
        """What ends a transaction that hangs, as gates do: a broker that starts may forget partitions (KAFKA-20734)."""
        return [(b"", b"", partition, []) for partition in range(self.partitions)]

    def _connect(self):
        if not self.transactional:
            return Producer({**self._quick, "acks": "all", "linger.ms": 0})
        steady = {"transactional.id": f"{self.name}.gate", **TRANSACTIONAL}
        while True:
            producer = Producer({**self._quick, **steady, "linger.ms": 0})
            try:
                producer.init_transactions(30)
            except KafkaException as error:  # such as CONCURRENT_TRANSACTIONS: the one before is still being ended
                if self._stop.is_set() or not error.args[0].retriable():
                    raise
                print("the pipeline connects again:", error)
            else:
                return producer

    def _take(self, message):
        pairs = message.headers()
        headers = decode(pairs)
        self.heard.append((headers, message.partition(), message.key()))
        outcomes = self.answer(Decoder().query(message.value()), headers)
        return [(encode_outcome(outcome), message.key(), message.partition(), pairs) for outcome in outcomes]

    def _send(self, producer, answers):
        """The offsets that they get, filled in as they are delivered."""
        offsets = []
        for value, key, partition, pairs in answers:
            producer.produce(
                f"{self.name}.egress", value, key, partition, headers=pairs,
                on_delivery=lambda error, message: offsets.append(-1 if error is not None else message.offset()),
            )  # fmt: skip
        return offsets

    def _stand(self, producer, answers):
        """Have them written for good, by another producer where one fails; in a transaction where asked for.

        What failed may have stood all the same: then clients hear it again, which is theirs to sort out. A commit may
        also have said that all stands where the broker does not have it: so its word on each message is awaited first.
        """
        while not self._stop.is_set():
            try:
                if self.transactional:
                    producer.begin_transaction()
                offsets = self._send(producer, answers)
                producer.flush(5)
                if len(offsets) == len(answers) and min(offsets) >= 0:
                    if self.transactional:
                        producer.commit_transaction(5)
                    break
                print("the pipeline writes its answers again:", offsets)  # seen where a test fails
            except KafkaException as error:
                print("the pipeline writes its answers again:", error)
            producer = self._connect()
        return producer


@pytest.fixture
def echo_pipeline(broker, unique_name):
    """Starts pipelines that answer as told; they end with the test."""
    started = []

    def start(answer=echo, **options):
        bootstrap = str(options.pop("bootstrap", broker))
        started.append(EchoPipeline(bootstrap, f"{unique_name}.{len(started)}", answer, **options))
        return started[-1]

    yield start
    for pipeline in started:
        pipeline.close()


@pytest.fixture
def settings(broker):
    return ClientSettings(bootstrap=broker)


@pytest.fixture
def own_broker(tmp_path):
    """A broker that a test may stop."""
    with EmbeddedBroker(tmp_path / "kafka", cache_dir=cache_dir(), start_timeout=BROKER_SECONDS) as running:
        yield running


@pytest.fixture
def make_gate(broker, unique_name, tmp_path):
    """Builds a `GateBench`: the topics of a pipeline whose stages the test plays."""
    made = []

    def build(stages='  - {name: a, model: "m:M"}', sinks=""):
        made.append(GateBench(broker, unique_name, tmp_path, stages, sinks))
        return made[-1]

    yield build
    for bench in made:
        bench.close()
