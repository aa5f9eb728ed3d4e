"""Reading partitions once: from where, to which end, and what is told of those that are not there."""

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from spillway.lineage.errors import BrokerError, TopicError
from spillway.producers.connection import ClientSettings
from spillway.producers.kafka.reading import Reading, slots_of
from tests.made_topics import make_all
from tests.waiting import PATIENT_SECONDS, until

MANY = 5_000  # records, more than may wait to be taken


@pytest.fixture
def slots(broker, unique_name):
    make_all(broker, [NewTopic(unique_name, 2, 1)])
    return [(unique_name, 0), (unique_name, 1)]


def append(broker, topic, values, partition=0):
    producer = Producer({"bootstrap.servers": broker, "queue.buffering.max.messages": 10 * MANY})
    for value in values:
        producer.produce(topic, value, None, partition)
    assert producer.flush(PATIENT_SECONDS) == 0


def numbers(many):
    return [b"%d" % n for n in range(many)]


def test_each_partition_is_read_in_order_to_its_end_and_then_what_is_appended(settings, slots, broker):
    topic = slots[0][0]
    assert slots_of(settings, topic) == slots
    with Reading(settings, slots) as reading:
        assert list(reading.to_the_end()) == []
        append(broker, topic, numbers(MANY))
        append(broker, topic, [b"other"], 1)
        read = list(reading.to_the_end())
        assert [record.value for record in read if record.partition == 0] == numbers(MANY)
        assert [record.value for record in read if record.partition == 1] == [b"other"]
        append(broker, topic, [b"later"], 1)
        came = []
        until(lambda: came.extend(reading.read()) or came, PATIENT_SECONDS)
        assert [record.value for record in came] == [b"later"]
        assert list(reading.to_the_end()) == []


def test_one_from_the_end_has_all_that_is_appended_once_it_is_made(settings, slots, broker):
    append(broker, slots[0][0], [b"before"])
    with Reading(settings, slots, from_end=True) as reading:
        append(broker, slots[0][0], [b"after"])
        assert [record.value for record in reading.to_the_end()] == [b"after"]


def test_a_partition_that_is_left_is_read_no_more(settings, slots, broker):
    append(broker, slots[0][0], numbers(MANY))
    append(broker, slots[0][0], [b"other"], 1)
    with Reading(settings, slots) as reading:
        reading.leave(slots[0])
        reading.leave(slots[0])
        assert b"other" in [record.value for record in reading.to_the_end()]
        append(broker, slots[0][0], [b"later"])
        assert list(reading.to_the_end()) == []


def test_whoever_does_not_take_what_was_read_keeps_no_thread(settings, slots, broker):
    append(broker, slots[0][0], numbers(MANY))
    with Reading(settings, slots[:1]) as reading:
        assert next(reading.to_the_end()).value == b"0"
        until(reading._calls.full, PATIENT_SECONDS)
    thread = reading._log._threads._all[0]._thread
    thread.join(PATIENT_SECONDS)
    assert not thread.is_alive()


@pytest.mark.parametrize("from_end", [False, True])
def test_topics_and_partitions_that_are_not_there_are_told_of_at_once(settings, slots, from_end):
    topic = slots[0][0]
    for wanted, words in (
        ([(f"{topic}.x", 0)], "cannot use topic"),
        ([*slots, (topic, 2), (topic, 3)], "4 are needed"),
    ):
        with pytest.raises(TopicError, match=words), Reading(settings, wanted, from_end=from_end) as reading:
            list(reading.to_the_end())


def test_a_cluster_that_does_not_answer_is_waited_for_and_given_up():
    with (
        pytest.raises(BrokerError, match="cannot reach Kafka"),
        Reading(ClientSettings(bootstrap="127.0.0.1:1"), [("t", 0)], patience=10.0) as reading,
    ):
        list(reading.to_the_end())
