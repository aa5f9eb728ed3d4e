"""The tap on a real broker: what passes is recorded, and nothing is left behind."""

import threading
import time
import uuid

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from spillway.lineage.errors import BrokerError
from spillway.producers.connection import ClientSettings
from spillway.producers.recording import About, RecordingWriter, read_recording
from spillway.producers.recording.tap import Tap
from tests.made_topics import make_all


@pytest.fixture
def pair(broker):
    name = f"tap-{uuid.uuid4().hex[:8]}"
    topics = [f"{name}.ingress", f"{name}.egress"]
    make_all(broker, [NewTopic(topic, 3) for topic in topics])
    return topics


def about(pair):
    return About(pipeline="tap", spec="name: tap\n", ingress=pair[0], egress=pair[1], started=time.time())


def produce(producer, topic, number, **changes):
    fields = {"key": b"k%d" % number, "headers": [("x-request-id", b"%d" % number)], "value": b"v%d" % number}
    producer.produce(topic, **fields | changes)


def test_everything_after_the_start_is_recorded_and_no_group_is_left(broker, pair, tmp_path):
    producer = Producer({"bootstrap.servers": broker})
    produce(producer, pair[0], 0)
    producer.flush()
    tap = Tap(ClientSettings(bootstrap=broker), pair)
    with RecordingWriter(tmp_path / "r", about(pair)) as writer:
        copying = threading.Thread(
            target=tap.copy, args=(writer, time.monotonic() + 30, lambda: sum(writer.counts.values()) >= 200)
        )
        copying.start()
        for number in range(1, 101):
            produce(producer, pair[0], number)
            produce(producer, pair[1], number, headers=None, key=None, value=None if number == 1 else b"o")
        producer.flush()
        copying.join()
    tap.close()
    recording = read_recording(tmp_path / "r")
    queries, outcomes = recording.queries(), [each for each in recording.messages() if each.topic == pair[1]]
    assert sorted(int(dict(q.headers)["x-request-id"]) for q in queries) == list(range(1, 101))
    assert all(q.value == b"v" + dict(q.headers)["x-request-id"] for q in queries)
    assert len(outcomes) == 100
    assert outcomes[0].headers == ()
    assert {o.value for o in outcomes} == {None, b"o"}
    groups = AdminClient({"bootstrap.servers": broker}).list_consumer_groups().result().valid
    assert "spillway-reader" not in {group.group_id for group in groups}


def test_aborted_outcomes_are_not_recorded(broker, pair, tmp_path):
    tap = Tap(ClientSettings(bootstrap=broker), pair)
    producer = Producer({"bootstrap.servers": broker, "transactional.id": pair[0]})
    producer.init_transactions()
    for number, end in ((1, producer.abort_transaction), (2, producer.commit_transaction)):
        producer.begin_transaction()
        produce(producer, pair[1], number, partition=0)
        producer.flush()
        end()
    with RecordingWriter(tmp_path / "r", about(pair)) as writer:
        tap.copy(writer, time.monotonic() + 30, lambda: bool(writer.counts))
    tap.close()
    assert [each.value for each in read_recording(tmp_path / "r").messages() if each.topic == pair[1]] == [b"v2"]


def test_a_pipeline_that_is_not_there_is_named(broker):
    with pytest.raises(BrokerError, match=r"cannot use topic absent\.egress on .*'spillway serve PIPELINE'"):
        Tap(ClientSettings(bootstrap=broker), ["absent.egress"])
