"""Three Kafka nodes under care: what was acknowledged outlives any one of them, its disk, and all at once."""

import os
import shutil
import signal

import psutil
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from spillway.agents.broker import EmbeddedCluster
from spillway.agents.cli.options import cache_dir
from spillway.agents.live.topics import ensure
from spillway.producers.connection import ClientSettings
from spillway.topology.load import parse
from spillway.topology.topics import topic_plan
from tests.nodes import ClusterBench
from tests.waiting import BROKER_SECONDS, Bound, until

pytestmark = pytest.mark.nightly

_QUIET = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with EmbeddedCluster(
        tmp_path_factory.mktemp("cluster") / "data", nodes=3, cache_dir=cache_dir(), start_timeout=BROKER_SECONDS
    ) as made:
        yield made


@pytest.fixture
def nodes(cluster):
    bench = ClusterBench(cluster)
    yield bench.nodes
    bench.mend()


def written(cluster, topic, count, within=60.0):
    """Write so many records, acknowledged by all replicas in sync; gives the errors."""
    settings = {"acks": "all", "enable.idempotence": True, "message.timeout.ms": int(within * 1000)}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **settings, **_QUIET})
    errors = []
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % 3, on_delivery=lambda e, _: e and errors.append(e))
    assert producer.flush(2 * within) == 0
    return errors


def read(cluster, topic, count):
    settings = {"group.id": "r", "enable.auto.commit": False, **_QUIET}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **settings})
    values = []
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(3)])
        bound = Bound(60)
        while len(values) < count:
            assert not bound.over, f"{len(values)} of {count} records are there"
            values += [message.value() for message in consumer.consume(100, 0.2) if message.error() is None]
    finally:
        consumer.close()
    return sorted(values, key=int)


def numbers(count):
    return [b"%d" % number for number in range(count)]


def test_three_nodes_are_small_and_each_knows_the_controller(cluster, nodes):
    assert len({node.port for node in cluster.nodes}) == 3
    assert nodes.controller() in {1, 2, 3}
    assert sum(psutil.Process(node.pid).memory_info().rss for node in cluster.nodes) < 1.2e9


def test_a_pipelines_topics_are_on_three_disks_and_it_is_said(cluster, nodes, unique_name):
    spec = parse(f"{{name: {unique_name}, slo: 1, stages: [{{name: a, model: 'm:M', state: shared}}]}}").spec
    said = []
    ensure(ClientSettings(bootstrap=cluster.bootstrap), topic_plan(spec), say=said.append)
    durable = [line.partition(":")[0] for line in said]
    assert durable == ["every acknowledged write is on the disks of 2 brokers, and soon on 3"]
    for topic in topic_plan(spec):
        until(lambda name=topic.name: nodes.in_sync(name, 3), 60, f"three replicas of {topic.name} in sync")


def test_what_was_acknowledged_outlives_any_node(cluster, nodes, unique_name):
    first, second = f"{unique_name}.leader", f"{unique_name}.controller"
    nodes.create(first, 3)
    nodes.create(second, 3)
    for topic, find in ((first, lambda: nodes.leader(first)), (second, nodes.controller)):
        victim = find()
        cluster.nodes[victim - 1].kill()
        assert written(cluster, topic, 90) == []
        assert read(cluster, topic, 90) == numbers(90)
        cluster.nodes[victim - 1].start()
        until(lambda topic=topic: nodes.in_sync(topic, 3), 60, "it has caught up")


def test_a_node_that_stands_still_leads_nothing(cluster, nodes, unique_name):
    nodes.create(unique_name, 3)
    victim = nodes.leader(unique_name)
    pid = cluster.nodes[victim - 1].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: nodes.leader(unique_name) != victim, 60, "another leader")
        assert written(cluster, unique_name, 30) == []
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: nodes.in_sync(unique_name, 3), 60, "it has caught up")
    assert read(cluster, unique_name, 30) == numbers(30)


def test_one_of_three_takes_nothing_and_two_take_it_again(cluster, nodes, unique_name):
    nodes.create(unique_name, 3)
    assert written(cluster, unique_name, 30) == []
    first, second = cluster.nodes[:2]
    first.kill()
    second.kill()
    refused = written(cluster, unique_name, 3, within=4.0)
    assert [error.code() for error in refused] == [KafkaError._MSG_TIMED_OUT] * 3
    second.start()
    assert written(cluster, unique_name, 30) == []
    assert set(read(cluster, unique_name, 60)) == set(numbers(30))


def test_a_disk_that_is_lost_is_made_anew_and_filled_from_the_others(cluster, nodes, unique_name):
    nodes.create(unique_name, 3)
    assert written(cluster, unique_name, 60) == []
    victim = cluster.nodes[nodes.leader(unique_name) - 1]
    victim.kill()
    shutil.rmtree(victim.folder.data)
    victim.start()
    until(lambda: nodes.in_sync(unique_name, 3), 60, "its disk is full again")
    for other in cluster.nodes:
        if other is not victim:
            other.kill()
            other.start()
            until(lambda: nodes.in_sync(unique_name, 3), 60, "all are in sync")
    assert read(cluster, unique_name, 60) == numbers(60)


def test_all_at_once_lose_nothing_either_and_come_back_where_they_were(cluster, nodes, unique_name):
    nodes.create(unique_name, 3)
    assert written(cluster, unique_name, 60) == []
    before = cluster.bootstrap
    cluster.kill()
    cluster.start()
    assert cluster.bootstrap == before
    assert read(cluster, unique_name, 60) == numbers(60)
    cluster.stop()
    assert cluster.folder.brokers() == []
    cluster.start()
    assert read(cluster, unique_name, 60) == numbers(60)
