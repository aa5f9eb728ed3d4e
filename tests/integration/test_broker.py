"""A real Kafka under the embedded broker's care."""

import socket
import sys

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from spillway.agents.broker import EmbeddedBroker
from spillway.agents.broker.folder import DataFolder
from spillway.agents.broker.ports import free_port
from spillway.agents.cli.options import cache_dir
from spillway.lineage.errors import BrokerError, UsageError
from tests.waiting import BROKER_SECONDS, gone, until


def make(folder, **kwargs):
    return EmbeddedBroker(folder, **{"cache_dir": cache_dir(), "start_timeout": BROKER_SECONDS} | kwargs)


def create(bootstrap, topic):
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.create_topics([NewTopic(topic, 1, 1)])[topic].result(90.0)


def write(bootstrap, topic, value):
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    errors = []
    producer.produce(topic, value, on_delivery=lambda error, _message: errors.append(error))
    producer.flush(90.0)
    assert errors == [None]


def read(bootstrap, topic):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "r", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(90.0)
        return message.value()
    finally:
        consumer.close()


def test_a_start_that_takes_too_long_is_said_so(tmp_path):
    with pytest.raises(BrokerError, match=r"did not format its storage in .* within 0\.01 s"):
        make(tmp_path / "kafka", start_timeout=0.01).start()


def test_unplanned_topics_are_not_made(broker, unique_name):
    producer = Producer({"bootstrap.servers": broker, "message.timeout.ms": 3000})
    errors = []
    producer.produce(unique_name, b"x", on_delivery=lambda error, _message: errors.append(error))
    producer.flush(90.0)
    assert errors[0] is not None
    assert unique_name not in AdminClient({"bootstrap.servers": broker}).list_topics(timeout=60).topics


@pytest.mark.nightly
def test_data_is_kept_at_the_same_address_over_a_stop_and_a_crash(tmp_path):
    with make(tmp_path / "data") as broker:
        address = broker.bootstrap
        create(address, "kept")
        write(address, "kept", b"one")
        pid = broker.pid
        broker.stop()
        until(lambda: gone(pid), 90.0)
        broker.stop()
        broker.start()
        assert broker.bootstrap == address
        assert read(address, "kept") == b"one"
        broker.kill()
        broker.start()
        assert read(address, "kept") == b"one"
        with pytest.raises(UsageError, match="already runs"):
            make(tmp_path / "data").start()
    assert DataFolder(tmp_path / "data").running() is None


def test_a_taken_port_is_avoided_or_refused_and_a_killed_guard_takes_kafka_with_it(broker, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port()))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} is in use"):
            make(tmp_path / "a", port=port, strict_port=True).start()
        notices = []
        with make(tmp_path / "a", port=port, notice=notices.append) as other:
            assert other.port != port
            assert str(port) in notices[0]
            create(other.bootstrap, "only-here")
            assert "only-here" not in AdminClient({"bootstrap.servers": broker}).list_topics(timeout=60).topics
            pid, address = other.pid, other.bootstrap
            if sys.platform == "linux":  # which alone ends a process with its parent
                psutil.Process(pid).parent().kill()
                until(lambda: gone(pid), 90.0)
                assert other.pid is None
                other.start()
                assert other.pid not in {None, pid}
                assert other.bootstrap == address
    with pytest.raises(BrokerError, match=r"did not start(.|\n)*log.segment.bytes(.|\n)*kafka.log"):
        make(tmp_path / "a", extra={"log.segment.bytes": "many"}).start()
    assert DataFolder(tmp_path / "a").running() is None
