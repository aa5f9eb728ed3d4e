"""The log's thread where nobody answers it, and where it cannot go on."""

import asyncio

import pytest
from confluent_kafka import KafkaError

from spillway.lineage.errors import BrokerError
from spillway.lineage.ports import Bounds
from spillway.producers.connection import ClientSettings
from spillway.producers.kafka import log
from tests.waiting import PATIENT_SECONDS

SLOT = ("t", 0)


class Message:
    def __init__(self, code):
        self._code = code

    def topic(self):
        return SLOT[0]

    def partition(self):
        return SLOT[1]

    def error(self):
        return KafkaError(self._code)


class Reader:
    """A cluster that says of each read what it is told to, and of a log's bounds nothing until it is told them."""

    said, bounds_of, asked = [], {}, set()

    def __init__(self, _settings, _options):
        self.consumer = self

    def start(self, _places):
        pass

    stop = resume = pause = start

    def read(self, _seconds, _most):
        return [Message(Reader.said.pop())] if Reader.said else []

    def bounds(self, place, _within):
        slot = place.topic, place.partition
        Reader.asked.add(slot)
        return Reader.bounds_of.get(slot)

    def heed(self, _quiet, _within):
        pass

    def close(self):
        pass


@pytest.fixture
def cluster(monkeypatch):
    monkeypatch.setattr(log, "Reader", Reader)
    Reader.said, Reader.bounds_of, Reader.asked = [], {}, set()
    return Reader


def run(main):
    async def within():
        opened = log.KafkaLog(ClientSettings(bootstrap="127.0.0.1:1"))
        try:
            return await main(opened)
        finally:
            await opened.close()

    return asyncio.run(asyncio.wait_for(within(), PATIENT_SECONDS))


def accepted_nothing(_records):
    raise AssertionError("there are no records")


def test_a_log_that_lacks_something_waits_for_an_answer_and_keeps_nobody_else_waiting(cluster):
    cluster.said = [KafkaError._AUTO_OFFSET_RESET]
    cluster.bounds_of = {("other", 0): Bounds(0, 0)}
    cuts = []

    async def main(opened):
        opened.follow(SLOT, 0, accepted_nothing, cut=cuts.append)
        other = opened.follow(("other", 0), 0, accepted_nothing)
        while SLOT not in cluster.asked:  # noqa: ASYNC110 - another thread asks
            await asyncio.sleep(0)
        assert await other.caught_up() == 0
        assert cuts == []
        cluster.bounds_of[SLOT] = Bounds(2, 3)
        while not cuts:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)

    run(main)
    assert cuts == [Bounds(2, 3)]


def test_a_log_that_cannot_be_read_for_good_says_so_to_all_that_wait_and_that_come(cluster):
    async def main(opened):
        following = opened.follow(SLOT, 0, accepted_nothing)
        waiting = asyncio.ensure_future(following.caught_up())
        await asyncio.sleep(0)
        cluster.said = [KafkaError.TOPIC_AUTHORIZATION_FAILED]
        for follows in (waiting, following.caught_up()):
            with pytest.raises(BrokerError, match=r"cannot read t\[0\]"):
                await follows
        with pytest.raises(BrokerError, match=r"cannot read t\[0\]"):
            await opened.follow(("other", 0), 0, accepted_nothing).caught_up()

    run(main)


def test_a_following_that_is_stopped_keeps_nobody_waiting(cluster):
    async def main(opened):
        following = opened.follow(SLOT, 0, accepted_nothing)
        waiting = asyncio.ensure_future(following.caught_up())
        await asyncio.sleep(0)
        following.stop()
        assert await waiting == 0

    run(main)
    assert cluster.bounds_of == {}
