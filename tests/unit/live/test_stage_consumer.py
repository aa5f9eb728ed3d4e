"""A stage's half of its consumer on the application's loop, without Faust's application."""

import asyncio
from types import SimpleNamespace

from spillway.agents.live.consumer.transport import StageConsumer
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
