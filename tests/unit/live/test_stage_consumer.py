"""A stage's half of its consumer on the application's loop, without Faust's application."""

import asyncio
from types import SimpleNamespace

from faust.types import TP

from spillway.agents.live.consumer.transport import Flow, StageConsumer
from spillway.lineage.ports import Commit


class Owner:
    def __init__(self):
        self.done, self.told = 4, []

    async def revoked(self):
        self.done = 9

    def commits(self):
        return {0: Commit(self.done, "")}

    def committed(self, offsets):
        self.told.append(offsets[0].offset)


class Consumer(StageConsumer):
    """Of one partition, and a reader which commits when it is let."""

    def __init__(self):
        self._commit_fut, self.loop = None, asyncio.get_running_loop()
        self.app = SimpleNamespace(client_only=False, on_rebalance_start=bool)
        self.owner, self.reader = Owner(), self
        self.free, self.offsets = asyncio.Event(), []
        self.topic, self._mine = "t", {("t", 0)}
        self._rebalancing = asyncio.Lock()

    def stop_flow(self):
        pass

    async def on_partitions_revoked(self, _revoked):
        pass


def test_what_is_finished_while_a_commit_waits_is_committed_before_the_partitions_go():
    async def scenario():
        consumer = Consumer()

        async def commit(offsets):
            await consumer.free.wait()
            consumer.offsets.append(offsets[0].offset)
            return True

        consumer.reader = SimpleNamespace(commit=commit)
        waiting = asyncio.create_task(consumer.commit())
        await asyncio.sleep(0)
        going = asyncio.create_task(consumer.revoked())
        await asyncio.sleep(0)
        consumer.free.set()
        await asyncio.gather(waiting, going)
        return consumer.offsets, consumer.owner.told

    assert asyncio.run(scenario()) == ([4, 9], [4, 9])


class Flowing(StageConsumer):
    """Of one partition, with the agent's channel as a list, which Faust may empty."""

    def __init__(self):
        self.channel, self.accepted, self.read_from = [], [], []
        self.suspend_flow = self.can_resume_flow = asyncio.Event()
        queue = SimpleNamespace(put_nowait_enhanced=lambda event, **_pressure: self.channel.append(event.value))
        topics = SimpleNamespace(_tp_index={TP("t", 0): [SimpleNamespace(queue=queue)]})
        self.app = SimpleNamespace(topics=topics, consumer_generation_id=1)
        self.owner = SimpleNamespace(accept=self.accept)
        self.reader = SimpleNamespace(wake=bool, read=lambda epoch, starts: self.read_from.append((epoch, starts)))
        self.may_accept = asyncio.Event()
        self.may_accept.set()
        self.epoch = self.taken = 0
        self._closed_flow, self._flow, self._read = False, Flow(), -1
        self._mine, self._starts = {TP("t", 0)}, {0: 7}

    async def accept(self, records):
        self.accepted.append(records)
        await self.may_accept.wait()


def flowing(script):
    async def main():
        consumer = Flowing()
        consumer.resume_flow()
        await script(consumer)
        return consumer

    return asyncio.run(asyncio.wait_for(main(), 60))


async def turns():
    for _ in range(5):
        await asyncio.sleep(0)


def test_chunks_of_a_flow_reach_the_owner_in_their_order_and_make_room():
    async def script(consumer):
        serving = asyncio.create_task(consumer.serve(*consumer.channel))
        await turns()
        for n in range(3):
            consumer.receive(consumer.epoch, [(0, [n])])
        await turns()
        assert consumer.taken == 3
        consumer.stop_flow()
        await serving

    consumer = flowing(script)
    assert consumer.accepted == [{0: [0]}, {0: [1]}, {0: [2]}]
    assert consumer.read_from == [(0, {0: 7})]


def test_what_is_left_of_a_flow_that_stops_is_void_and_counted():
    async def script(consumer):
        consumer.may_accept.clear()
        old = consumer.epoch
        serving = asyncio.create_task(consumer.serve(*consumer.channel))
        for n in range(3):
            consumer.receive(old, [(0, [n])])
        await turns()
        consumer.stop_flow()
        consumer.receive(old, [(0, [3])])
        assert consumer.taken == 4
        consumer.may_accept.set()
        await serving

    assert flowing(script).accepted == [{0: [0]}]


def test_a_flow_that_faust_has_emptied_out_of_the_channel_is_put_there_again():
    async def script(consumer):
        consumer.receive(consumer.epoch, [(0, [0])])
        consumer.channel.clear()
        consumer.resume_flow()
        serving = asyncio.create_task(consumer.serve(*consumer.channel))
        await turns()
        consumer.resume_flow()
        assert len(consumer.channel) == 1, "the agent has it"
        consumer.stop_flow()
        await serving

    consumer = flowing(script)
    assert consumer.accepted == [{0: [0]}]
    assert len(consumer.read_from) == 1
