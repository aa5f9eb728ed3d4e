"""A stopping broker ends transactions and does not tell their partitions: the gate's successor ends them there."""

import re
import threading
import time
from contextlib import suppress

import numpy as np
import pytest
from confluent_kafka import Consumer, IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from spillway.agents.broker import EmbeddedBroker
from spillway.agents.live.spans import offsets
from spillway.producers.connection import TRANSACTIONAL
from spillway.topology import topics
from tests.waiting import BROKER_SECONDS, until

from .conftest import make_topics
from .gate_bench import PARTITIONS, GateBench, ids

pytestmark = pytest.mark.nightly

GATES = 32  # whose transactions end one after the other while the broker stops
STOPPING = (0.04, 0.24)  # seconds after the signal, from the first to the last: it knows no leaders for some 30 ms
STOPS = 5
SURE = 2.0  # seconds
SKIPPED = re.compile(r"transaction markers for (\S+)\.gate\.0, these partitions are likely deleted")


def left_open(bootstrap, name, *, with_offsets):
    """A transaction of the gate of pipeline `name`, all written and not ended."""
    quiet = {"bootstrap.servers": bootstrap, "log_level": 0}
    producer = Producer({**quiet, "transactional.id": f"{name}.gate.0", **TRANSACTIONAL})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topics.egress(name), b"left", partition=0, headers=[("x-request-id", b"left")])
    producer.flush(30)
    if with_offsets:
        stranger = Consumer({**quiet, "group.id": f"{name}.gate"})
        places = [TopicPartition(topics.outcomes(name), 0, 0)]
        producer.send_offsets_to_transaction(places, stranger.consumer_group_metadata(), 30)
        stranger.close()
    return producer


def commit(producer, after):
    time.sleep(after)
    with suppress(KafkaException):  # the broker has gone: this one is told when it is back
        producer.commit_transaction(1)


def skipped_by_a_stop(broker, names):
    """Stop the broker while gates commit; the names of the pipelines whose partitions it says to have left out."""
    partitions = {topic(name): PARTITIONS for name in names for topic in (topics.egress, topics.outcomes)}
    make_topics(broker.bootstrap, partitions, **{"max.message.bytes": str(16 << 20)})
    transactions = [
        left_open(broker.bootstrap, name, with_offsets=number % 2 == 0) for number, name in enumerate(names)
    ]
    commits = [
        threading.Thread(target=commit, args=(producer, after), daemon=True)
        for producer, after in zip(transactions, np.linspace(*STOPPING, len(names)), strict=True)
    ]
    for thread in commits:
        thread.start()
    broker.stop()
    for thread in commits:
        thread.join(600)
    return SKIPPED.findall(broker.folder.log.read_text())


def ends(bench, isolation):
    return offsets(bench.asking, topics.egress(bench.name), range(PARTITIONS), OffsetSpec.latest(), isolation, 30)


def hangs(bench):
    return ends(bench, IsolationLevel.READ_COMMITTED) != ends(bench, IsolationLevel.READ_UNCOMMITTED)


def stuck(bench):
    """Whether it hangs for longer than it takes a broker that has just started to end what it knows of."""
    sure = time.monotonic() + SURE
    while time.monotonic() < sure:
        if not hangs(bench):
            return False
        time.sleep(0.1)
    return True


def seen(bench):
    return ids([message for message in bench.released() if message.headers()])  # what ended the hang has none


def assert_the_gate_goes_on(bench, expected):
    bench.report("r0", 0, 0)
    bench.producer.flush(30)
    gate = bench.gate()
    until(lambda: not hangs(bench), 120)
    until(lambda: "r0" in seen(bench), 120)
    assert seen(bench) == expected
    bench.stop(gate)


def test_a_gate_ends_what_a_stopping_broker_has_left_hanging(tmp_path, unique_name):
    to_see = {0: ["r0"], 1: ["left", "r0"]}  # by whether only an output hangs: with offsets it falls, else it stands
    with EmbeddedBroker(tmp_path / "kafka", start_timeout=BROKER_SECONDS) as broker:
        for stop in range(STOPS):
            names = [f"{unique_name}.{stop}.{number}" for number in range(GATES)]
            skipped = skipped_by_a_stop(broker, names)
            broker.start()
            for number, name in enumerate(names):
                if name not in skipped or number % 2 not in to_see:
                    continue
                folder = tmp_path / name
                folder.mkdir()
                bench = GateBench(broker.bootstrap, name, folder, '  - {name: a, model: "m:M"}')
                try:
                    if stuck(bench):
                        assert_the_gate_goes_on(bench, to_see.pop(number % 2))
                finally:
                    bench.close()
            if not to_see:
                return
        pytest.skip("this Kafka tells every partition")
