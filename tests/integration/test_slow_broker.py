"""The tests' own slow link to a real broker: clients that start behind the proxy stay there, and know themselves."""

from contextlib import closing

import pytest
from confluent_kafka import Producer

from spillway.agents.cli.options import cache_dir
from spillway.agents.live.states.partition_reading import PartitionReading
from spillway.producers.connection import ClientSettings
from tests.slow_broker import slow_broker
from tests.waiting import Bound, until

from .conftest import make_topics

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    with slow_broker(tmp_path_factory.mktemp("slow"), cache_dir()) as broker:
        make_topics(broker.broker.bootstrap, {"t": 1})
        yield broker


def test_an_end_is_heard_from_a_broker_whose_every_answer_takes_longer_than_it_is_first_given(slow):
    slow.link.shape()
    settings, bound = ClientSettings(bootstrap=slow.bootstrap), Bound(90)
    with closing(PartitionReading(settings, [("t", 0)], {"client.id": "late"})) as reading:
        while reading.end(("t", 0)) is None:  # connections are made, leaders known
            assert not bound.over
        slow.link.shape(lambda link: link.client == "late", delay=1.5, direction="down")
        while reading.end(("t", 0)) is None:
            assert not bound.over
        slow.link.reset()


def values_of(reading):
    return [message.value() for message in reading.poll(0.05)[0]]


def test_a_reader_that_hears_nothing_for_long_takes_another_consumer_and_goes_on_where_it_was(slow):
    slow.link.reset()
    producer = Producer({"bootstrap.servers": slow.broker.bootstrap})
    make_topics(slow.broker.bootstrap, {"deaf": 1})
    settings, slot = ClientSettings(bootstrap=slow.bootstrap), ("deaf", 0)
    producer.produce("deaf", b"1")
    with closing(PartitionReading(settings, [slot], {"client.id": "deaf"})) as reading:
        until(lambda: reading.end(slot) is not None, 90)
        until(lambda: values_of(reading) == [b"1"], 90)
        first = reading.consumer
        slow.link.shape(lambda link: link.client == "deaf", held=True)
        until(lambda: reading.end(slot) is None and reading.consumer is not first, 90)
        slow.link.reset()
        producer.produce("deaf", b"2")
        assert producer.flush(90) == 0
        read = []
        until(lambda: reading.end(slot) == 2 and (read.extend(values_of(reading)) or read), 90)
        assert read == [b"2"]


def test_so_does_one_that_asks_nothing_where_nothing_comes(slow):
    slow.link.reset()
    make_topics(slow.broker.bootstrap, {"quiet": 1})
    settings, slot = ClientSettings(bootstrap=slow.bootstrap), ("quiet", 0)
    with closing(PartitionReading(settings, [slot], {"client.id": "quiet"})) as reading:
        first = reading.consumer
        until(lambda: reading.end(slot) == 0, 90)
        slow.link.shape(lambda link: link.client == "quiet", held=True)

        def renewed():
            reading.poll(0.05)
            reading.heed(0.2, 0.2)
            return reading.consumer is not first

        until(renewed, 90)
        slow.link.reset()
        until(lambda: reading.end(slot) == 0, 90)
