"""The tests' own slow link to a real broker: clients that start behind the proxy stay there, and know themselves."""

import pytest
from confluent_kafka import Producer

from spillway.agents.cli.options import cache_dir
from spillway.producers.connection import ClientSettings
from spillway.producers.kafka.log import KafkaLog
from tests.slow_broker import slow_broker
from tests.waiting import until

from .conftest import make_topics

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    with slow_broker(tmp_path_factory.mktemp("slow"), cache_dir()) as broker:
        make_topics(broker.broker.bootstrap, {"t": 1})
        yield broker


def ends(following):
    read = []
    following.when_read(read.append)
    until(lambda: read, 90)
    return read


def test_an_end_is_heard_from_a_broker_whose_every_answer_takes_longer_than_it_is_first_given(slow):
    slow.link.shape()
    with KafkaLog(ClientSettings(bootstrap=slow.bootstrap)) as log:
        following = log.follow(("t", 0), None, print)
        assert ends(following) == [0]  # connections are made, leaders known
        slow.link.shape(lambda link: link.client == "log", delay=1.5, direction="down")
        assert ends(following) == [0]
        slow.link.reset()


@pytest.mark.parametrize("asks", [True, False])
def test_a_log_that_hears_nothing_for_long_takes_another_consumer_and_goes_on_where_it_was(slow, asks, caplog):
    slow.link.reset()
    topic = f"deaf-{asks}"
    producer = Producer({"bootstrap.servers": slow.broker.bootstrap})
    make_topics(slow.broker.bootstrap, {topic: 1})
    producer.produce(topic, b"1")
    assert producer.flush(90) == 0
    read, came = [], []
    with KafkaLog(ClientSettings(bootstrap=slow.bootstrap)) as log:
        following = log.follow((topic, 0), None, came.extend)
        assert ends(following) == [1]
        slow.link.shape(lambda link: link.client == "log", held=True)
        if asks:
            following.when_read(read.append)
        until(lambda: "connecting again" in caplog.text, 90)
        slow.link.reset()
        producer.produce(topic, b"2")
        assert producer.flush(90) == 0
        until(lambda: len(came) == 2, 90)
        until(lambda: bool(read) == asks, 90)
    assert [record.value for record in came] == [b"1", b"2"]
