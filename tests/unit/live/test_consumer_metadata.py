"""Metadata that name no broker, or not the topic: aiokafka asks again where it would have gone on without."""

import asyncio
from types import SimpleNamespace

import pytest
from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import GroupCoordinatorNotAvailableError

from agents.live.consumer.thread import StageConsumerThread, keep_known, look_up_patiently
from lineage.errors import BrokerError


class Client:
    """As much of aiokafka's client as is asked."""

    def __init__(self):
        self.cluster = ClusterMetadata()
        self.node = None
        self.asked = 0
        self.known = asyncio.Event()

    def get_random_node(self):
        return self.node

    async def coordinator_lookup(self, kind, key):
        return (self.node, kind, key)

    async def force_metadata_update(self):
        self.asked += 1
        if self.asked == 2:
            self.cluster._partitions["t"] = {0: object()}
            self.known.set()


def test_a_coordinator_is_looked_for_again_while_no_broker_is_known():
    client = Client()
    look_up_patiently(client)
    with pytest.raises(GroupCoordinatorNotAvailableError) as error:
        asyncio.run(client.coordinator_lookup(0, "g"))
    assert error.value.retriable  # which is what aiokafka tries again after
    client.node = 7
    assert asyncio.run(client.coordinator_lookup(0, "g")) == (7, 0, "g")


def test_a_topic_that_is_not_known_is_asked_for_until_it_is():
    async def watch():
        client = Client()
        keeping = asyncio.create_task(keep_known(client, lambda: {"t"}, period=0.0))
        await asyncio.wait_for(client.known.wait(), 30)
        for _ in range(10):  # turns, in each of which it could ask again
            await asyncio.sleep(0)
        keeping.cancel()
        return client.asked

    assert asyncio.run(watch()) == 2


@pytest.mark.parametrize("failure", [AssertionError("no broker"), None])
def test_an_owner_hears_that_its_replica_is_out_of_its_group(failure):
    heard = []
    thread = SimpleNamespace(
        transport=SimpleNamespace(membership=SimpleNamespace(group="g")),
        consumer=SimpleNamespace(crashed=heard.append),
        parent_loop=SimpleNamespace(call_soon_threadsafe=lambda call, *told: call(*told)),
    )

    async def coordinate():
        if failure is not None:
            raise failure

    async def end():
        coordination = asyncio.create_task(coordinate())
        await asyncio.wait([coordination])
        StageConsumerThread._out_of_group(thread, coordination)

    asyncio.run(end())
    assert [type(error) for error in heard] == ([BrokerError] if failure else [])
    assert all("g: cannot be a member" in str(error) for error in heard)
