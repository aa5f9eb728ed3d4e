"""Whatever happens to a stage's group and fetches, it reads on as soon as there is room: everything, once, in order.

The reader, the transport and Faust's agent are the real ones, around a model of the client library
(`tests/modelled_client.py`) that is compared with the library itself.
"""

import asyncio
import math
import subprocess
import sys
from collections import defaultdict
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from hypothesis import example, given
from hypothesis import strategies as st

from spillway.agents.live.consumer import reader as reading
from spillway.agents.live.consumer.app import build
from spillway.agents.live.groups import Membership
from spillway.lineage.ports import Commit
from spillway.producers.connection import ClientSettings
from tests import mock_cluster
from tests.modelled_client import Cluster

TOPIC = "t"
PARTITIONS = range(3)
CHUNK = 5
STRUCK = [KafkaError._BAD_MSG, KafkaError._AUTO_OFFSET_RESET]  # what a fetch may end with
_WITHIN = 60.0  # seconds; what is waited for takes milliseconds


async def until(condition):
    async with asyncio.timeout(_WITHIN):
        while not condition():  # noqa: ASYNC110 - a thread changes it
            await asyncio.sleep(0.001)


class Served:
    """A stage's application and its owner, who says where reading begins, and how much of it there is room for."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.begun = []  # for each assignment, where its partitions begin
        self.begin = {}  # where those of the next one will
        self.taken = defaultdict(list)  # by number of the assignment and partition
        self.errors = []
        self.room = asyncio.Semaphore(0)
        membership = Membership(
            group="g", instance="g.0", settings=ClientSettings(bootstrap="b:1"), chunk_records=CHUNK
        )
        self.app = build(TOPIC, membership, self, 3600.0)

    # What the transport wants of it.

    def commits(self):
        return {}

    def committed(self, offsets):
        pass

    async def assigned(self, partitions):
        self.begun.append({each: self.begin[each] for each in partitions})
        return self.begun[-1]

    def crashed(self, error):
        self.errors.append(error)

    async def revoked(self):
        pass

    def out_of_range(self, _partition, position, bounds):
        return max(position, bounds.start)

    async def accept(self, chunk):
        assert self.consumer.taken <= self.consumer.reader._handed
        for partition, records in chunk.items():
            self.taken[len(self.begun) - 1, partition] += [record.offset for record in records]
        await self.room.acquire()

    # What happens to it.

    @property
    def consumer(self):
        return self.app.stage_consumer

    async def give_room(self, chunks):
        for _ in range(chunks):
            self.room.release()

    async def append(self, partition, count):
        self.cluster.append(partition, count)

    async def settle(self):
        """Let the reader take all that it takes without more room."""
        await until(lambda: not self.cluster.newest.busy)

    async def deal(self, parts, *, revoke=True, full=False):
        """Deal the partitions, to who is full or not; `parts`: which, and which hundredth of its log comes next."""
        if full:
            await self.settle()
        self.begin = {each: self.cluster.ends[each] * hundredths // 100 for each, hundredths in parts.items()}
        count = len(self.begun)
        if revoke:
            self.cluster.revoke()
        self.cluster.deal(parts)
        await until(lambda: len(self.begun) > count)

    async def resume(self):
        """What a recovery of Faust's does in the end, even one that an assignment has overtaken."""
        self.app.flow_control.resume()
        self.consumer.resume_flow()

    async def strike(self, partition, code):
        self.cluster.strike(partition, code)

    async def commit(self, *, lost):
        """Commit the same twice, with the answers to come, or never to come as the client is out of its group."""
        self.cluster.answers = False
        offsets = {0: Commit(1, "")}
        commits = [asyncio.ensure_future(self.consumer.reader.commit(offsets)) for _ in range(2)]
        await until(lambda: self.cluster.newest.committing == len(commits))
        self.cluster.answers = True
        if lost:
            await self.join_anew()
        else:
            self.cluster.answer()
        async with asyncio.timeout(_WITHIN):
            assert await asyncio.gather(*commits) == [not lost] * 2

    async def join_anew(self):
        """Be out of the group until another client joins it, and be dealt everything again."""
        old, reader = self.cluster.newest, self.consumer.reader
        self.cluster.revoke()
        await until(lambda: reader._out_since is not None and not reader._revoking)
        reader._out_since = -math.inf
        await until(lambda: self.cluster.newest is not old and old.closed)
        await self.deal(dict.fromkeys(PARTITIONS, 50), revoke=False)


def step(act, **drawn):
    return st.fixed_dictionaries(drawn).map(lambda given: partial(act, **given))


_PARTITION = st.sampled_from(PARTITIONS)
_DEALT = st.dictionaries(_PARTITION, st.integers(0, 100), min_size=1)
STEPS = st.one_of(
    step(Served.append, partition=_PARTITION, count=st.integers(1, 40)),
    step(Served.give_room, chunks=st.integers(1, 4)),
    step(Served.settle),
    step(Served.resume),
    step(Served.deal, parts=_DEALT, revoke=st.booleans(), full=st.booleans()),
    step(Served.strike, partition=_PARTITION, code=st.sampled_from(STRUCK)),
    step(Served.commit, lost=st.booleans()),
    step(Served.join_anew),
)


async def play(steps):
    served = Served(Cluster(TOPIC, len(PARTITIONS)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "Consumer", served.cluster.client)
        patch.setattr(reading, "_TURN", 0.001)
        patch.setattr(reading, "_AGAIN", 0.0)
        starting = asyncio.ensure_future(served.app.start())
        await until(lambda: served.cluster.clients and served.cluster.newest.subscribed)
        try:
            await served.deal(dict.fromkeys(PARTITIONS, 0), revoke=False)
            await starting
            for partition in PARTITIONS:
                served.cluster.append(partition, 30)
            for each in steps:
                await each(served)
            await served.give_room(10_000)
            last = len(served.begun) - 1
            ends = {each: [*range(start, served.cluster.ends[each])] for each, start in served.begun[last].items()}
            await until(lambda: all(len(served.taken[last, each]) >= len(ends[each]) for each in ends))
            assert {each: served.taken[last, each] for each in ends} == ends
            await until(lambda: served.consumer.reader._handed == served.consumer.taken)
        finally:
            await served.app.stop()
    for (number, partition), offsets in served.taken.items():
        start = served.begun[number][partition]
        assert offsets == [*range(start, start + len(offsets))]
    assert not served.errors


@given(st.lists(STEPS, max_size=12))
@example([partial(Served.deal, parts={0: 50, 1: 0}, full=True), partial(Served.deal, parts={0: 0, 2: 0}, full=True)])
@example([Served.settle, Served.join_anew])
@example(
    [Served.settle, partial(Served.strike, partition=0, code=KafkaError._BAD_MSG), partial(Served.give_room, chunks=1)]
)
@example([Served.settle, Served.resume, Served.resume])
@example([partial(Served.commit, lost=True)])
@example([partial(Served.commit, lost=False)])
def test_a_stage_reads_on_whatever_happens_to_its_group(steps):
    asyncio.run(play(steps))


def kept(consumer):
    """What comes next of a partition of 90 records, over assignments, pauses and seeks."""
    said = []

    def assign(offset):
        consumer.assign([TopicPartition(TOPIC, 0, offset)])

    def come(count=1, seconds=60.0):
        for _ in range(count):
            message = consumer.poll(seconds)
            error = message and message.error()
            said.append(message and (error.name() if error is not None else message.offset()))

    def pause():
        consumer.pause(consumer.assignment())

    def resume():
        consumer.resume(consumer.assignment())

    assign(10)
    come(3)
    pause()
    come(seconds=0.5)
    consumer.unassign()
    assign(10)
    come(seconds=0.5)  # the pause is kept
    resume()
    come(3)
    resume()  # of what is not paused
    come(2)
    for offset in (40, 20):  # an earlier one's position is not
        pause()
        assign(offset)
        resume()
        pause()
        resume()
        come(2)
    assign(5000)
    come()
    try:
        consumer.seek(TopicPartition(TOPIC, 0, 30))
    except KafkaException as error:
        said.append(error.args[0].name())
    assign(30)
    come()
    return said


KEPT = [10, 11, 12, None, None, 10, 11, 12, 13, 14, 40, 41, 20, 21, "_AUTO_OFFSET_RESET", "_STATE", 30]
REAL = """
from confluent_kafka import Consumer, Producer
from tests.mock_cluster import MockCluster
from tests.unit.live.test_reading_on import TOPIC, kept
cluster = MockCluster()
cluster.topic(TOPIC, 1)
producer = Producer({"bootstrap.servers": cluster.bootstrap})
for _ in range(90):
    producer.produce(TOPIC, b"v", partition=0)
producer.flush()
options = {"group.id": "g", "enable.auto.commit": False, "auto.offset.reset": "error"}
print(kept(Consumer({"bootstrap.servers": cluster.bootstrap, **options})))
"""


@pytest.mark.skipif(not mock_cluster.available(), reason="this system does not tell which libraries are loaded")
def test_librdkafka_keeps_what_the_model_keeps():
    program = subprocess.run(
        [sys.executable, "-c", REAL], cwd=Path(__file__).parents[3], capture_output=True, text=True, timeout=600,
        check=False,
    )  # fmt: skip
    assert program.stdout.splitlines() == [str(KEPT)], program.stderr


def test_the_model_keeps_what_librdkafka_keeps():
    cluster = Cluster(TOPIC, 1)
    cluster.append(0, 90)
    assert kept(cluster.client({})) == KEPT
