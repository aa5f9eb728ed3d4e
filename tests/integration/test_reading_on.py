"""On a real broker: a replica that had no room when its group changed reads on from where it stands, to the end."""

import asyncio

import pytest
from confluent_kafka import Producer

from spillway.agents.live.consumer.reader import GroupReader
from spillway.agents.live.groups import Membership
from spillway.producers.connection import ClientSettings
from tests.waiting import Bound

from .conftest import make_topics

PARTITIONS = 4
EACH = 2000
CHUNK = 100


class Replica:
    """Takes chunks while it has room. `come`: by partition, the offsets that have come to whichever replica."""

    def __init__(self, broker, topic, number, come):
        self.epoch, self.taken = 0, 0
        self.room = False
        self.dealt = []
        self.errors = []
        self._come = come
        self._waiting = []
        settings = ClientSettings(bootstrap=broker)
        member = Membership(group=topic, instance=f"{topic}.{number}", settings=settings, chunk_records=CHUNK)
        self.reader = GroupReader(member, topic, self)

    def receive(self, epoch, parts):
        self._waiting.append((epoch, parts))
        if self.room:
            self.work()

    def work(self):
        self.room = True
        for epoch, parts in self._waiting:
            for partition, records in parts if epoch == self.epoch else ():
                self._come[partition] += [record.offset for record in records]
            self.taken += 1
        self._waiting.clear()
        self.reader.wake()

    def out_of_range(self, *place):
        self.errors.append(place)

    def crashed(self, error):
        self.errors.append(error)

    async def revoked(self):
        self.epoch += 1

    async def assigned(self, partitions):
        self.epoch += 1
        self.dealt.append(partitions)
        self.reader.read(self.epoch, {each: len(self._come[each]) for each in partitions})


async def until(condition, seconds=60.0):
    bound = Bound(seconds)
    while not condition():
        assert not bound.over, "the condition did not come to hold"
        await asyncio.sleep(0.02)


@pytest.fixture
def topic(broker, unique_name):
    make_topics(broker, {unique_name: PARTITIONS})
    producer = Producer({"bootstrap.servers": broker})
    for partition in range(PARTITIONS):
        for _ in range(EACH):
            producer.produce(unique_name, b"v", partition=partition)
    assert producer.flush(120) == 0
    return unique_name


def test_a_replica_that_has_paused_reads_on_whenever_its_group_changes(broker, topic):
    async def play():
        come = {partition: [] for partition in range(PARTITIONS)}
        first = Replica(broker, topic, 0, come)
        second = None
        try:
            await until(lambda: first.reader._paused)
            second = Replica(broker, topic, 1, come)
            await until(lambda: second.dealt and len(first.dealt) == 2 and second.reader._paused)
            first.work()
            await until(lambda: sum(map(len, come.values())) == PARTITIONS * EACH // 2)
            await second.reader.stop()  # paused, and leaving: the first is dealt everything
            await until(lambda: sum(map(len, come.values())) == PARTITIONS * EACH)
        finally:
            for replica in filter(None, (first, second)):
                await replica.reader.stop()
        assert come == {partition: [*range(EACH)] for partition in range(PARTITIONS)}
        assert first.errors + second.errors == []

    asyncio.run(play())
