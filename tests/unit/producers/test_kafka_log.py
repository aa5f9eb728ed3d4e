"""The log's thread where nobody answers it, and where it cannot go on."""

import asyncio
import threading
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError

from spillway.lineage.errors import TopicError, UsageError
from spillway.lineage.ports import Bounds
from spillway.producers.connection import ClientSettings
from spillway.producers.kafka import log
from tests.followed import caught_up
from tests.waiting import PATIENT_SECONDS, until

SLOT = ("t", 0)


class Message:
    def __init__(self, code):
        self._code = code

    def topic(self):
        return SLOT[0]

    def partition(self):
        return SLOT[1]

    def error(self):
        return None if self._code is None else KafkaError(self._code)

    def offset(self):
        return 0

    def timestamp(self):
        return 1, 0

    key = value = headers = bytes


class Reader:
    """A cluster that says of each read what it is told to, and of a log's bounds nothing until it is told them."""

    said, bounds_of, asked, there, started, within = [], {}, set(), True, set(), []
    error = KafkaError.UNKNOWN_TOPIC_OR_PART  # of a topic that is not there

    def __init__(self, _settings, _options):
        self.consumer = self

    def start(self, places):
        Reader.started.update((place.topic, place.partition) for place in places)

    def stop(self, _places):
        pass

    resume = pause = seek = stop

    def list_topics(self, topic, timeout):
        error = None if Reader.there else KafkaError(Reader.error)
        return SimpleNamespace(topics={topic: SimpleNamespace(error=error, partitions={0: None})}, timeout=timeout)

    def no_topic(self, topic, error):
        return TopicError(f"{topic}: {error.str()}")

    def answered(self):
        pass

    def read(self, seconds, _most):
        Reader.within.append(seconds)
        return [Message(Reader.said.pop())] if Reader.said and SLOT in Reader.started else []

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
    Reader.said, Reader.bounds_of, Reader.asked, Reader.started, Reader.within = [], {}, set(), set(), []
    Reader.there, Reader.error = True, KafkaError.UNKNOWN_TOPIC_OR_PART
    return Reader


def run(main):
    async def within():
        loop = asyncio.get_running_loop()
        opened = log.KafkaLog(ClientSettings(bootstrap="127.0.0.1:1")).through(loop.call_soon_threadsafe)
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
        assert await caught_up(other) == 0
        assert cuts == []
        cluster.bounds_of[SLOT] = Bounds(2, 3)
        while not cuts:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)

    run(main)
    assert cuts == [Bounds(2, 3)]


def test_a_partition_that_cannot_be_read_says_so_and_calls_nobody_who_waits_for_its_end(cluster):
    cluster.bounds_of = {("other", 0): Bounds(0, 0)}
    told, ends = [], []

    async def main(opened):
        following = opened.follow(SLOT, 0, accepted_nothing, trouble=told.append)
        following.when_read(ends.append)
        await asyncio.sleep(0)
        cluster.said = [KafkaError.TOPIC_AUTHORIZATION_FAILED]
        while not told:  # noqa: ASYNC110 - another thread reads
            await asyncio.sleep(0)
        following.when_read(ends.append)
        assert await caught_up(opened.follow(("other", 0), 0, accepted_nothing)) == 0

    run(main)
    assert [str(each) for each in told] == [str(told[0])]
    assert "cannot read t[0]" in str(told[0])
    assert ends == []


@pytest.mark.parametrize(("settles", "within"), [(60.0, log._POLL), (0.0, log._CALM)])
def test_reads_wait_longer_where_nothing_was_asked_for_a_while(cluster, monkeypatch, settles, within):
    monkeypatch.setattr(log, "_SETTLES", settles)

    async def main(opened):
        opened.follow(SLOT, 0, accepted_nothing)
        while len(cluster.within) < 5:  # noqa: ASYNC110 - another thread reads
            await asyncio.sleep(0)

    run(main)
    assert set(cluster.within[1:]) == {within}


def test_a_following_that_is_stopped_keeps_nobody_waiting(cluster):
    async def main(opened):
        following = opened.follow(SLOT, 0, accepted_nothing)
        waiting = asyncio.ensure_future(caught_up(following))
        await asyncio.sleep(0)
        following.stop()
        assert await waiting == 0

    run(main)
    assert cluster.bounds_of == {}


def test_a_topic_that_is_not_there_is_told_of_once_and_followed_when_it_is(cluster):
    cluster.there, cluster.bounds_of = False, {SLOT: Bounds(0, 0)}
    said = []

    async def main(opened):
        following = opened.follow(SLOT, 0, accepted_nothing, trouble=said.append)
        while not said:  # noqa: ASYNC110 - another thread asks
            await asyncio.sleep(0.01)
        cluster.there = True
        assert await caught_up(following) == 0

    run(main)
    assert [type(each) for each in said] == [TopicError]


def test_who_fails_to_accept_is_told_and_ends_nobody_elses_reading(cluster):
    cluster.bounds_of = {SLOT: Bounds(0, 1), ("other", 0): Bounds(0, 0)}
    cluster.said = [None]
    told = threading.Event()

    def accept(_records):
        raise ZeroDivisionError

    with log.KafkaLog(ClientSettings(bootstrap="127.0.0.1:1")) as opened:
        opened.follow(SLOT, 0, accept, trouble=lambda _error: told.set())
        assert told.wait(PATIENT_SECONDS)
        read = threading.Event()
        opened.follow(("other", 0), 0, accepted_nothing).when_read(lambda _end: read.set())
        assert read.wait(PATIENT_SECONDS)


def test_an_error_that_nobody_foresaw_ends_nothing_and_loses_no_record(cluster, monkeypatch, caplog):
    monkeypatch.setattr(log, "_AGAIN", 0.01)
    cluster.bounds_of, cluster.said = {SLOT: Bounds(0, 1)}, [None]
    read, came = threading.Event(), []
    fails = [ZeroDivisionError("nobody foresaw this")]

    def record(message):
        if fails:
            cluster.said.append(None)
            raise fails.pop()
        return SimpleNamespace(offset=message.offset(), value=None)

    monkeypatch.setattr(log, "record_of", record)
    with log.KafkaLog(ClientSettings(bootstrap="127.0.0.1:1")) as opened:
        opened.follow(SLOT, 0, came.extend).when_read(lambda _end: read.set())
        assert read.wait(PATIENT_SECONDS)
    assert [record.offset for record in came] == [0]
    assert "nobody foresaw this" in caplog.text


def test_a_topic_that_may_not_be_read_fails_who_waits_for_it(cluster):
    cluster.there, cluster.error = False, KafkaError.TOPIC_AUTHORIZATION_FAILED
    told = []

    async def main(opened):
        opened.follow(SLOT, 0, accepted_nothing, trouble=told.append)
        while not told:  # noqa: ASYNC110 - another thread asks
            await asyncio.sleep(0)
        assert "cannot read t" in str(told[0])
        assert not isinstance(told[0], TopicError)

    run(main)


def test_a_slow_follower_of_few_records_is_not_held_up_and_of_many_is_read_on(cluster, monkeypatch):
    """One that was a few transactions of the gate late lost a second each time, for which librdkafka's thread slept."""
    posted, resumed = [], []
    monkeypatch.setattr(log, "_AHEAD", 20)
    monkeypatch.setattr(Reader, "resume", lambda _self, places: resumed.extend(places))
    monkeypatch.setattr(Reader, "seek", lambda _self, place: resumed.append(place))
    opened = log.KafkaLog(
        ClientSettings(bootstrap="127.0.0.1:1"), post=lambda call, *arguments: posted.append((call, arguments))
    )
    with opened:
        opened.follow(SLOT, 0, lambda _records: None)
        cluster.said = [None] * 10
        until(lambda: len(posted) == 10, PATIENT_SECONDS)
        before = len(resumed)
        cluster.said = [None] * 30
        until(lambda: len(posted) >= 20, PATIENT_SECONDS)
        for call, arguments in posted:
            call(*arguments)
        until(lambda: len(resumed) > before + 1, PATIENT_SECONDS)
        assert [(place.topic, place.partition) for place in resumed[before:]] == [SLOT, SLOT]


def test_a_consumer_that_cannot_be_made_is_made_later_and_no_question_is_forgotten(cluster, monkeypatch, caplog):
    monkeypatch.setattr(log, "_AGAIN", 0.01)
    fails = [UsageError("no certificate"), UsageError("no certificate"), ZeroDivisionError("nobody foresaw this")]
    bounds = Reader.bounds

    def asked(self, place, within):
        if fails:
            raise fails.pop()
        return bounds(self, place, within)

    monkeypatch.setattr(Reader, "bounds", asked)
    with log.KafkaLog(ClientSettings(bootstrap="127.0.0.1:1")) as opened:
        cluster.bounds_of = {SLOT: Bounds(0, 0)}

        def init(self, _settings, _options):
            if fails:
                raise fails.pop()
            self.consumer = self

        monkeypatch.setattr(Reader, "__init__", init)
        read = threading.Event()
        opened.follow(SLOT, 0, accepted_nothing).when_read(lambda _end: read.set())
        assert read.wait(PATIENT_SECONDS)
    assert caplog.text.count("beginning again") == 3
