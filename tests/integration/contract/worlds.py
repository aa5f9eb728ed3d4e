"""The two worlds that ports live in, as the tests of the contract use them: the same calls, in memory and on Kafka."""

import asyncio
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from spillway.agents.live.consumer.reader import GroupReader
from spillway.agents.live.gate.blocking import complete
from spillway.agents.live.gate.pulled_input import KafkaPulledInput, leave, member_settings
from spillway.agents.live.gate.transaction import KafkaTransactions, TransactionalWriter
from spillway.agents.live.groups import Membership
from spillway.agents.live.output import Output
from spillway.agents.live.spans import KafkaSpans, at_once
from spillway.agents.memory.groups import Group, Ticket
from spillway.agents.memory.input import MemoryInput
from spillway.agents.memory.ports import MemoryLog, MemoryOutput, MemorySpans, MemoryTransactions
from spillway.agents.memory.pulled_input import MemoryPulledInput
from spillway.agents.memory.records import kept
from spillway.agents.memory.world import DriverWorld
from spillway.lineage.ports import Commit, Outgoing
from spillway.producers.connection import ClientSettings
from spillway.producers.kafka.log import KafkaLog
from spillway.producers.patience import patiently
from tests.made_topics import make_all
from tests.mock_cluster import MockCluster
from tests.waiting import PATIENT_SECONDS


class MemoryWorld:
    """A world in memory; each client is a process of its own."""

    def __init__(self, seed=0):
        self.world = DriverWorld(seed)
        self._groups = {}
        self._members = 0

    def run(self, main):
        return self.world.run_until(main(self))

    async def create(self, topic, partitions):
        self.world.partitions[topic] = partitions

    async def write(self, topic, partition, *values):
        for value in values:
            self.world.broker.append((topic, partition), kept(Outgoing(topic, partition, b"k", value)))

    async def delete_before(self, topic, partition, offset):
        self.world.broker.delete_before((topic, partition), offset)
        self.world.wake((topic, partition))

    async def until(self, condition, what=""):
        end = self.world.now + PATIENT_SECONDS
        while not condition():
            assert self.world.now < end, what
            await asyncio.sleep(0.05)

    async def _in_process(self, make):
        process = self.world.process("client")

        async def main():
            return make(process)

        return await process.start(main())

    async def stalled(self, _input):
        """Wait until an input whose owner takes nothing has stopped to ask for records."""
        await asyncio.sleep(1)

    async def log(self):
        return await self._in_process(lambda process: MemoryLog(self.world, process))

    async def spans(self):
        return await self._in_process(lambda process: MemorySpans(self.world, process))

    async def output(self, stored):
        return await self._in_process(lambda process: MemoryOutput(self.world, process, stored))

    async def transactions(self, transactional_id, topic, group):
        """Return transactions of a new member of a group, which takes all partitions of its topic."""
        self._members += 1
        for partition in range(self.world.partitions[topic]):
            self.world.broker.own(group, partition, self._members)
        number = self._members
        return await self._in_process(
            lambda process: MemoryTransactions(self.world, process, transactional_id, group, lambda: Ticket(number))
        )

    async def pulled(self, topic, group, instance):
        """Return an input that its owner takes from, and transactions of the same member."""

        def make(process):
            pulled = MemoryPulledInput(self.world, process, self._group(group, topic), instance)
            writer = MemoryTransactions(self.world, process, f"{topic}.{instance}", group, pulled.ticket)
            return pulled, writer

        return await self._in_process(make)

    @staticmethod
    async def call(coroutine):
        """Return what a call of a port returns that may block."""
        return await coroutine

    def _group(self, name, topic):
        if name not in self._groups:
            self._groups[name] = Group(self.world, name, topic)
        return self._groups[name]

    async def position(self, _topic, group, partition):
        place = self.world.broker.position(group, partition)
        return None if place is None else Commit(*place)

    async def join(self, topic, group, instance, owner):
        def make(process):
            made = owner.input = MemoryInput(self.world, process, self._group(group, topic), instance, owner)
            made.start()
            return made

        return await self._in_process(make)


class KafkaWorld:
    """The same on a real Kafka; all clients are of this process."""

    def __init__(self, bootstrap):
        self.settings = ClientSettings(bootstrap=bootstrap)
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._member = None
        self._writers = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})

    def run(self, main):
        try:
            return asyncio.run(asyncio.wait_for(main(self), PATIENT_SECONDS))
        finally:
            for client in (*self._writers, *filter(None, [self._member])):
                client.close()

    async def create(self, topic, partitions):
        await asyncio.to_thread(make_all, self.settings.bootstrap, [NewTopic(topic, partitions, 1)])

    async def write(self, topic, partition, *values):
        for value in values:
            self._producer.produce(topic, value, b"k", partition)
        assert await asyncio.to_thread(self._producer.flush, PATIENT_SECONDS) == 0

    async def delete_before(self, topic, partition, offset):
        def delete(seconds):
            for future in self._admin.delete_records([TopicPartition(topic, partition, offset)]).values():
                future.result(seconds)

        # a broker that has a topic may still have to learn that it leads it
        await asyncio.to_thread(patiently, delete, f"delete records of {topic}", PATIENT_SECONDS)

    async def until(self, condition, what=""):
        end = time.monotonic() + PATIENT_SECONDS
        while not condition():
            assert time.monotonic() < end, what
            await asyncio.sleep(0.02)

    async def stalled(self, stalling):
        await self.until(lambda: stalling.reader._paused)

    async def log(self):
        return KafkaLog(self.settings).through(asyncio.get_running_loop().call_soon_threadsafe)

    async def spans(self):
        return KafkaSpans(self.settings.confluent())

    async def output(self, stored):
        return KafkaOutput(self.settings, stored)

    async def transactions(self, transactional_id, topic, group):
        if self._member is not None:
            await asyncio.to_thread(self._member.close)
        settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        self._member = Consumer({**self.settings.confluent(), **settings})
        self._member.subscribe([topic])
        while not self._member.assignment():  # `run` bounds it
            await asyncio.to_thread(self._member.poll, 0.05)
        writer = TransactionalWriter(self.settings.confluent(), transactional_id, max_message_bytes=1_000_000)
        self._writers.append(writer)
        membership = self._member.consumer_group_metadata()
        return KafkaTransactions(writer, topic, lambda: membership)

    async def pulled(self, topic, group, instance):
        quick = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 200}
        member = {"group.id": group, "group.instance.id": instance, "client.id": instance}
        spans = KafkaSpans(self.settings.confluent(), at_once)
        pulled = KafkaPulledInput(
            topic,
            {**member_settings(self.settings, topic, 0), **quick, **member},
            lambda partition: complete(spans.bounds(topic, [partition]))[partition],
            lambda member_id: leave(self.settings, group, member_id),
        )
        writer = TransactionalWriter(self.settings.confluent(), f"{topic}.{instance}", max_message_bytes=1_000_000)
        self._writers.append(writer)
        return pulled, KafkaTransactions(writer, topic, pulled.membership)

    @staticmethod
    async def call(coroutine):
        return await asyncio.to_thread(complete, coroutine)

    async def position(self, topic, _group, partition):
        (place,) = await asyncio.to_thread(
            self._member.committed, [TopicPartition(topic, partition)], timeout=PATIENT_SECONDS
        )
        return None if place.offset < 0 else Commit(place.offset, place.metadata or "")

    async def join(self, topic, group, instance, owner):
        made = owner.input = KafkaInput(self.settings, topic, group, instance, owner)
        return made


class MockWorld(KafkaWorld):
    """The same on librdkafka's mock of a cluster, which deletes no records and knows no static members."""

    def __init__(self):
        self._mock = MockCluster()
        super().__init__(self._mock.bootstrap)

    async def create(self, topic, partitions):
        self._mock.topic(topic, partitions)


class KafkaOutput:
    """`Output` of `spillway.lineage.ports`, over the one that stages have."""

    def __init__(self, settings, stored):
        loop = asyncio.get_running_loop()
        self._lost = []
        self._output = Output(settings.confluent(), loop, on_stored=stored, on_lost=self._lost.append)

    @property
    def room(self):
        return self._output.room

    def send(self, record, token):
        self._output.send(record, token)

    async def close(self):
        while self._output.in_flight:  # noqa: ASYNC110 - it has no other sign
            await asyncio.sleep(0.005)
        assert not self._lost
        await self._output.close()


class KafkaInput:
    """`Input` of `spillway.lineage.ports`, over the reader that stages have, without Faust."""

    def __init__(self, settings, topic, group, instance, owner):
        self._owner = owner
        self._chunks = asyncio.Queue()
        self._judging = set()
        self._mine = frozenset()
        self.epoch = self.taken = 0
        times = {"session": 6.0, "heartbeat": 0.2, "rebalance": 6.0, "fetch_wait": 0.05, "chunk_records": 20}
        member = Membership(group=group, instance=instance, settings=settings, **times)
        self.reader = GroupReader(member, topic, self)
        self._accepting = asyncio.ensure_future(self._accept())

    async def _accept(self):
        while True:
            epoch, parts = await self._chunks.get()
            if epoch == self.epoch:
                await self._owner.accept(dict(parts))
            self.taken += 1
            self.reader.wake()

    def receive(self, epoch, parts):
        self._chunks.put_nowait((epoch, parts))

    async def revoked(self):
        self.epoch += 1
        await self._owner.revoked()
        self._mine = frozenset()

    async def assigned(self, partitions):
        self.epoch += 1
        epoch, self._mine = self.epoch, partitions
        self.reader.read(epoch, await self._owner.assigned(partitions))

    def out_of_range(self, epoch, partition, position):
        async def judge():
            bounds = (await self.reader.bounds([partition]))[partition]
            self.reader.read_on(epoch, partition, self._owner.out_of_range(partition, position, bounds))

        task = asyncio.ensure_future(judge())
        self._judging.add(task)
        task.add_done_callback(self._judging.discard)

    def crashed(self, error):
        self._owner.crashed(error)

    async def commit(self, offsets):
        # Kafka asks for the generation alone; `StageConsumer` commits what is assigned, as this does
        return offsets.keys() <= self._mine and await self.reader.commit(offsets)

    async def positions(self, partitions):
        return await self.reader.committed(partitions)

    async def bounds(self, partitions):
        return await self.reader.bounds(partitions)

    async def close(self, *, leave):
        self.reader.leave_on_stop = leave
        await self.reader.stop()
        self._accepting.cancel()
