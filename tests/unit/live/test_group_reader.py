"""A stage's reader: what is handed over and when, whose positions count, and what the group's word does to it."""

import asyncio
import threading
from collections import deque
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, TopicPartition

from spillway.agents.live.consumer import reader as reading
from spillway.agents.live.consumer.reader import GroupReader
from spillway.agents.live.groups import Membership
from spillway.lineage.errors import BrokerError
from spillway.lineage.ports import Commit
from spillway.producers.connection import ClientSettings

TOPIC = "t"


class Message:
    def __init__(self, partition, offset, error=None):
        self._said = {"partition": partition, "offset": offset, "error": error}

    def __getattr__(self, name):
        said = {"topic": TOPIC, "key": None, "value": b"v", "timestamp": (1, 5), "headers": [("a", b"1")], **self._said}
        return lambda: said[name]


class Broker:
    """Stands for librdkafka: what it gives is laid in `queue` (messages and callbacks), what it is told is kept."""

    def __init__(self):
        self.made = []
        self.queue = deque()
        self.came = threading.Condition()
        self.calls = []
        self.commit_error = None
        self.watermarks = (0, 100)

    def consumer(self, settings, logger):
        made = Consumer(self, settings)
        self.made.append(made)
        return made

    def lay(self, *given):
        with self.came:
            self.queue.extend(given)
            self.came.notify_all()

    def told(self, name):
        return [call[1:] for call in self.calls if call[0] == name]


class Consumer:
    def __init__(self, broker, settings):
        self.broker, self.settings, self.asked = broker, settings, 0

    def _next(self):
        while self.broker.queue:
            given = self.broker.queue.popleft()
            if isinstance(given, Message):
                return given
            given(self)
        return None

    def poll(self, seconds):
        with self.broker.came:
            self.broker.came.wait_for(lambda: self.broker.queue, seconds)
        self.asked += 1
        return self._next()

    def consume(self, most, _seconds):
        found = []
        while len(found) < most and (message := self._next()) is not None:
            found.append(message)
        return found

    def subscribe(self, _topics, on_assign, on_revoke):
        self.on_assign, self.on_revoke = on_assign, on_revoke

    def commit(self, offsets, asynchronous=True):
        self.broker.calls.append(("commit", asynchronous, {p.partition: (p.offset, p.metadata) for p in offsets}))
        if asynchronous:
            self.broker.lay(lambda made: made.settings["on_commit"](self.broker.commit_error, offsets))
        return offsets

    def get_watermark_offsets(self, _place, timeout):
        return self.broker.watermarks

    def assign(self, places):
        self.broker.calls.append(("assign", {place.partition: place.offset for place in places}))

    def memberid(self):
        return "" if ("unsubscribe",) in self.broker.calls else "m"

    def __getattr__(self, name):
        return lambda *told: self.broker.calls.append((name, *told))


class Receiver:
    def __init__(self):
        self.epoch, self.taken = 1, 0
        self.got, self.lost, self.errors, self.turns = [], [], [], []

    def receive(self, epoch, parts):
        self.got.append((epoch, {partition: [each.offset for each in records] for partition, records in parts}))

    def out_of_range(self, *place):
        self.lost.append(place)

    async def revoked(self):
        self.turns.append("revoked")
        self.epoch += 1

    async def assigned(self, partitions):
        self.turns.append(sorted(partitions))

    def crashed(self, error):
        self.errors.append(error)


def assigned(*partitions):
    return lambda made: made.on_assign(made, [TopicPartition(TOPIC, partition) for partition in partitions])


def revoked(made):
    made.on_revoke(made, [])


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - a thread changes it
            await asyncio.sleep(0.001)


@pytest.fixture
def run(monkeypatch):
    """Run a scenario against a reader that has just been made, and end it."""
    monkeypatch.setattr(reading, "_TURN", 0.001)
    monkeypatch.setattr(reading, "_AGAIN", 0.0)
    broker = Broker()
    monkeypatch.setattr(reading, "Consumer", broker.consumer)

    def go(scenario, **membership):
        async def all_of_it():
            receiver = Receiver()
            settings = ClientSettings(bootstrap="b:1")
            reader = GroupReader(
                Membership(group="g", instance="g.0", settings=settings, **membership), TOPIC, receiver
            )
            try:
                await scenario(SimpleNamespace(broker=broker, receiver=receiver, reader=reader))
            finally:
                await reader.stop()
            return receiver

        return asyncio.run(all_of_it())

    return go


async def begin(one, starts, epoch=1):
    one.broker.lay(assigned(*starts))
    await until(lambda: one.receiver.turns and one.receiver.turns[-1] == sorted(starts))
    one.reader.read(epoch, starts)
    await until(lambda: starts in (places for (places,) in one.broker.told("assign")))


def test_an_assignment_is_accepted_empty_and_read_from_where_its_owner_says(run):
    async def scenario(one):
        await begin(one, {0: 7, 2: 9})
        assert one.broker.told("assign") == [({},), ({0: 7, 2: 9},)]
        one.broker.lay(Message(0, 6), Message(0, 7), Message(2, 9), Message(0, 8), Message(1, 3))
        await until(lambda: sum(len(each) for _, parts in one.receiver.got for each in parts.values()) == 3)
        found = [
            (epoch, partition, offset)
            for epoch, parts in one.receiver.got
            for partition in parts
            for offset in parts[partition]
        ]
        assert sorted(found) == [(1, 0, 7), (1, 0, 8), (1, 2, 9)]  # nothing below its start, nothing foreign

    run(scenario)


def test_of_a_shard_only_its_own_partitions_are_read(run):
    async def scenario(one):
        one.broker.lay(assigned(0, 1, 2, 3))
        await until(lambda: one.receiver.turns == [[1, 3]])

    run(scenario, reads=lambda partition: partition % 2 == 1)


def test_no_more_than_two_chunks_wait_for_the_agent_and_one_is_held(run):
    async def scenario(one):
        await begin(one, {0: 0})
        for offset in range(2):
            one.broker.lay(Message(0, offset))
            await until(lambda offset=offset: len(one.receiver.got) == offset + 1)
        one.broker.lay(*(Message(0, offset) for offset in range(2, 40)))
        await until(lambda: one.broker.told("pause"))  # ten records are held: looking at the group would bring more
        assert len(one.receiver.got) == 2
        one.receiver.taken = 1
        one.reader.wake()
        await until(lambda: len(one.receiver.got) == 3)
        assert one.receiver.got[2][1][0][:10] == list(range(2, 12))
        assert one.broker.told("resume")
        one.receiver.taken = 100
        one.reader.wake()
        await until(lambda: sum(len(parts[0]) for _, parts in one.receiver.got) == 40)

    run(scenario, chunk_records=10)


@pytest.mark.parametrize("rebalance", [[revoked, assigned(0)], [assigned(0)]], ids=["revoked", "not revoked"])
def test_what_is_in_hand_at_the_poll_that_brings_an_assignment_is_not_of_it(run, rebalance):
    async def scenario(one):
        await begin(one, {0: 4})
        before = len(one.receiver.turns)
        one.broker.lay(Message(0, 4), Message(0, 5), *rebalance, Message(0, 6))  # one poll takes all of it
        await until(lambda: len(one.receiver.turns) == before + len(rebalance))
        one.reader.read(one.receiver.epoch, {0: 2})
        await until(lambda: one.broker.told("assign")[-1] == ({0: 2},))
        one.broker.lay(Message(0, 2))
        await until(lambda: one.receiver.got)
        assert one.receiver.got == [(one.receiver.epoch, {0: [2]})]

    run(scenario)


def test_a_partition_out_of_range_is_judged_and_all_are_read_from_where_they_stand(run):
    async def scenario(one):
        await begin(one, {0: 4, 1: 90})
        one.broker.lay(Message(0, 4), Message(1, -1001, KafkaError(KafkaError._AUTO_OFFSET_RESET)))
        await until(lambda: one.receiver.lost)
        assert one.receiver.lost == [(1, 1, 90)]
        one.reader.read_on(1, 1, None)
        one.reader.read_on(1, 1, 50)
        await until(lambda: one.broker.told("assign")[-1] == ({0: 5, 1: 50},))

    run(scenario)


def test_a_damaged_fetch_is_read_again_and_nothing_behind_it_before(run, caplog):
    async def scenario(one):
        await begin(one, {0: 4})
        one.broker.lay(Message(0, 4), Message(0, 5, KafkaError(KafkaError._BAD_MSG)), Message(0, 9))
        await until(lambda: one.broker.told("assign")[-1] == ({0: 5},) and one.receiver.got)
        one.broker.lay(Message(0, 5))
        await until(lambda: len(one.receiver.got) == 2)
        assert one.receiver.got == [(1, {0: [4]}), (1, {0: [5]})]

    run(scenario)
    assert "t[0]: a fetch was damaged" in caplog.text


REFUSED = KafkaError(KafkaError.ILLEGAL_GENERATION)


@pytest.mark.parametrize("error", [None, REFUSED])
def test_a_commit_says_whether_it_came_about(run, error):
    async def scenario(one):
        one.broker.commit_error = error
        await begin(one, {0: 4})
        assert await one.reader.commit({0: Commit(5, "note")}) == (error is None)
        assert one.broker.told("commit") == [(True, {0: (5, "note")})]

    run(scenario)


def test_a_commit_while_partitions_are_revoked_is_waited_for_there(run):
    """No callback comes while one is running: neither for that commit, nor for one that was under way."""

    async def scenario(one):
        await begin(one, {0: 4})
        said = []

        async def last():
            said.append(await one.reader.commit({0: Commit(9, "last")}))

        one.receiver.revoked = last
        one.broker.lay(revoked)
        await until(lambda: one.broker.told("unassign"))
        assert said == [True]
        assert one.broker.told("commit") == [(False, {0: (9, "last")})]

    run(scenario)


def test_a_broker_that_knows_no_end_yet_is_asked_again(run):
    async def scenario(one):
        one.broker.watermarks = (0, -1001)
        asking = asyncio.create_task(one.reader.bounds([0]))
        await until(lambda: one.broker.made[0].asked > 3)
        assert not asking.done()
        one.broker.watermarks = (3, 8)
        assert await asking == {0: (3, 8)}

    run(scenario)


@pytest.mark.parametrize("for_good", [True, False])
def test_only_a_replica_that_stops_for_good_leaves_its_group(run, for_good):
    kept = []

    async def scenario(one):
        one.reader.leave_on_stop = for_good
        kept.append(one.broker)

    run(scenario)
    assert (("unsubscribe",) in kept[0].calls) == for_good
    assert ("close",) in kept[0].calls


def test_who_is_out_of_its_group_for_long_joins_with_another_client(run, monkeypatch):
    monkeypatch.setattr(reading, "_DEAF", 0.02)

    async def scenario(one):
        await until(lambda: len(one.broker.made) > 1 and one.broker.told("close"))
        old, new = one.broker.made[0], one.broker.made[-1]
        monkeypatch.setattr(reading, "_DEAF", 1e9)
        one.broker.lay(lambda _made: old.on_assign(old, [TopicPartition(TOPIC, 0)]))  # as it ends
        await begin(one, {1: 3})
        assert one.receiver.turns == [[1]]
        assert new is not old

    run(scenario)


@pytest.mark.parametrize("code", [KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError._AUTHENTICATION])
def test_what_time_does_not_heal_ends_the_stage(run, code):
    async def scenario(one):
        one.broker.lay(lambda made: made.settings["error_cb"](KafkaError(code)))
        await until(lambda: one.receiver.errors)

    (error,) = run(scenario).errors
    assert isinstance(error, BrokerError)
    assert "g: cannot join the group" in str(error)


@pytest.mark.parametrize("heard", ["commit", "poll"])
def test_a_topic_that_is_gone_ends_the_stage_lest_it_skip_what_a_new_one_has(run, heard):
    async def scenario(one):
        await begin(one, {0: 4})
        if heard == "commit":
            one.broker.commit_error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
            with pytest.raises(BrokerError, match=r"t is not there any more .*'spillway broker topics delete'"):
                await one.reader.commit({0: Commit(5, "")})
            return
        one.broker.lay(Message(0, 0, KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        await until(lambda: one.receiver.errors)
        assert "t is not there any more" in str(one.receiver.errors[0])

    run(scenario)


def test_nobody_waits_for_a_reader_that_has_ended(run):
    async def scenario(one):
        await begin(one, {0: 4})
        one.broker.lay(Message(0, 0, KafkaError(KafkaError._FATAL, "fenced", True)))
        while await one.reader.commit({0: Commit(5, "")}):
            pass
        with pytest.raises(BrokerError):
            await one.reader.bounds([0])

    assert run(scenario).errors


def test_a_name_that_another_process_has_taken_ends_the_stage(run):
    async def scenario(one):
        one.broker.lay(Message(0, 0, KafkaError(KafkaError._FATAL, "fenced", True)))
        await until(lambda: one.receiver.errors)

    assert "fenced" in str(run(scenario).errors[0])
