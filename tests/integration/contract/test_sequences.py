"""Random sequences of what may happen to a log and to a group, compared step by step between the worlds."""

import os
from random import Random

import pytest

from spillway.lineage.ports import Commit
from tests.followed import caught_up
from tests.mock_cluster import available

from .test_input import Owner
from .worlds import KafkaWorld, MemoryWorld, MockWorld

SEEDS = range(int(os.environ.get("SPILLWAY_CONTRACT_SEEDS", "1")))
STEPS = 12
PARTITIONS = 3


class LogSequence:
    """Writes, deletions, and followings that begin, are caught up with, and stop."""

    def __init__(self, world, topic, seed):
        self.world, self.topic, self.random = world, topic, Random(seed)
        self.came = {partition: [] for partition in range(PARTITIONS)}
        self.cuts = []
        self.following = {}
        self.written = dict.fromkeys(range(PARTITIONS), 0)
        self.log = None

    async def run(self):
        await self.world.create(self.topic, PARTITIONS)
        self.log = await self.world.log()
        seen = []
        for _ in range(STEPS):
            name = self.random.choice(["write", "write", "follow", "follow", "stop", "delete"])
            partition = self.random.randrange(PARTITIONS)
            await getattr(self, name)(partition)
            seen.append((name, partition, await self.settled()))
        await self.log.close()
        return seen

    async def settled(self):
        """Return what has come when all that is followed is caught up with."""
        for following in list(self.following.values()):
            await caught_up(following)
        return {p: len(came) for p, came in self.came.items()}, list(self.cuts), dict(self.positions())

    def positions(self):
        return {partition: following.position for partition, following in self.following.items()}

    async def write(self, partition):
        for _ in range(self.random.randint(1, 4)):
            await self.world.write(self.topic, partition, b"%d" % self.written[partition])
            self.written[partition] += 1

    async def follow(self, partition):
        start = self.random.randint(0, self.written[partition])
        self.begin(partition, self.random.choice([None, start]))

    def begin(self, partition, start):
        if partition in self.following:
            self.following[partition].stop()
        self.came[partition].clear()
        slot = self.topic, partition
        self.following[partition] = self.log.follow(
            slot, start, self.came[partition].extend, cut=lambda bounds: self.cut(partition, bounds)
        )

    def cut(self, partition, bounds):
        self.cuts.append((partition, bounds))
        self.following.pop(partition).stop()

    async def stop(self, partition):
        if partition in self.following:
            self.following.pop(partition).stop()

    async def delete(self, partition):
        if partition not in self.following:  # whether a reader was past it already is a matter of time
            await self.world.delete_before(self.topic, partition, self.random.randint(0, self.written[partition]))
            start = self.random.choice([None, self.written[partition]])
            self.begin(partition, start)


class WholeLogSequence(LogSequence):
    """A log of which nothing is deleted."""

    async def delete(self, partition):
        pass


class GroupSequence:
    """Members that join, leave and come back, records, and commits; seen each time that all is quiet."""

    def __init__(self, world, topic, seed):
        self.world, self.topic, self.random = world, topic, Random(seed)
        self.members = {}
        self.written = dict.fromkeys(range(PARTITIONS), 0)

    async def run(self):
        await self.world.create(self.topic, PARTITIONS)
        await self.join("a")
        seen = [await self.settled()]
        for _ in range(STEPS):
            name = self.random.choice(["write", "write", "commit", "commit", "hold", "come", "come", "leave"])
            await getattr(self, name)(self.random.choice("abc"))
            seen.append((name, await self.settled()))
        for member in self.members.values():
            member.held.set()
            await member.input.close(leave=True)
        return seen

    async def join(self, name):
        self.members[name] = owner = Owner(name)
        await self.world.join(self.topic, f"{self.topic}.group", f"{self.topic}.{name}", owner)

    def dealt(self):
        ordered = sorted(self.members)
        return {name: set(range(PARTITIONS)[index :: len(ordered)]) for index, name in enumerate(ordered)}

    async def settled(self):
        """Wait until the group and what it reads are as they will stay, and return them."""
        members = self.members
        await self.world.until(lambda: {n: set(o.partitions) for n, o in members.items()} == self.dealt(), "dealt")
        await self.world.until(lambda: all(self.has_read(owner) for owner in members.values()), "read")
        assert not any(owner.errors for owner in members.values())
        places = await next(iter(members.values())).input.positions(range(PARTITIONS))
        return {n: {p: list(v) for p, v in o.now.items()} for n, o in members.items()}, dict(places)

    def has_read(self, owner):
        if not owner.held.is_set():
            return True
        return all(len(owner.now[p]) >= self.written[p] - owner.starts[p] for p in owner.partitions)

    async def write(self, _name):
        partition = self.random.randrange(PARTITIONS)
        await self.world.write(self.topic, partition, b"%d" % self.written[partition])
        self.written[partition] += 1

    async def commit(self, name):
        """Commit a partition of whoever has it, or try one that it has not."""
        if name not in self.members:
            return
        partition = self.random.randrange(PARTITIONS)
        offset = self.random.randint(0, self.written[partition])
        owner = self.members[name]
        done = await owner.input.commit({partition: Commit(offset, f"by {name}")})
        assert done == (partition in owner.partitions)

    async def hold(self, name):
        """A member is slow with a chunk while records come and it is dealt others; it goes on within the step."""
        if name in self.members and self.members[name].partitions:
            self.members[name].held.clear()
            await self.write(name)
            other = next((each for each in "abc" if each not in self.members), None)
            if other is not None:
                await self.come(other)
            self.members[name].held.set()

    async def come(self, name):
        if name in self.members:
            await self.members.pop(name).input.close(leave=False)
        await self.join(name)

    async def leave(self, name):
        if name in self.members and len(self.members) > 1:
            await self.members.pop(name).input.close(leave=True)


def compare(kind, topic, seed, world):
    in_memory = MemoryWorld(seed).run(lambda world: kind(world, topic, seed).run())
    there = world.run(lambda world: kind(world, topic, seed).run())
    for step, (one, other) in enumerate(zip(in_memory, there, strict=True)):
        assert one == other, f"step {step}"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", [LogSequence, GroupSequence])
def test_what_is_seen_in_memory_is_what_is_seen_on_kafka(broker, unique_name, kind, seed):
    compare(kind, unique_name, seed, KafkaWorld(broker))


@pytest.mark.skipif(not available(), reason="this system does not tell which libraries are loaded")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", [WholeLogSequence, pytest.param(GroupSequence, marks=pytest.mark.nightly)])
def test_what_is_seen_in_memory_is_what_is_seen_on_librdkafkas_mock(unique_name, kind, seed):
    compare(kind, unique_name, seed, MockWorld())
