"""What `PulledInput` promises, in memory and on Kafka."""

import pytest

from spillway.lineage.errors import OustedError
from spillway.lineage.ports import Commit

PARTITIONS = 4
TRIES = 1_000  # of a twentieth of a second


class Owner:
    """Reads what it is given from what is committed, or from 0."""

    def __init__(self, name):
        self.name = name
        self.partitions = set()
        self.records = {}  # of this assignment, by partition
        self.judged = []
        self.input = self.writer = None

    async def assigned(self, partitions):
        places = await self.input.positions(partitions)
        self.partitions |= partitions
        self.records |= {partition: [] for partition in partitions}
        return {partition: places[partition].offset if partition in places else 0 for partition in partitions}

    async def revoked(self, partitions):
        assert partitions <= self.partitions
        self.partitions -= partitions

    def out_of_range(self, partition, position, bounds):
        self.judged.append((partition, position, bounds))
        return bounds.start

    def values(self, partition):
        return [record.value for record in self.records.get(partition, ())]


async def owner_of(world, topic, name):
    owner = Owner(name)
    owner.input, owner.writer = await world.pulled(topic, f"{topic}.group", f"{topic}.{name}")
    await world.call(owner.input.join(owner))
    return owner


async def taken(world, owners, condition):
    """Have owners take until a condition holds."""
    for _ in range(TRIES):
        if condition():
            return
        for owner in owners:
            for record in await world.call(owner.input.take(100, 0.05)):
                assert record.partition in owner.partitions, f"a record of {record.partition} is not {owner.name}'s"
                owner.records[record.partition].append(record)
    pytest.fail("it did not come about")


def all_of(*owners):
    return sum(len(owner.partitions) for owner in owners) == PARTITIONS and all(owner.partitions for owner in owners)


async def ended(world, *owners):
    for owner in owners:
        await world.call(owner.input.close(leave=True))


async def test_who_comes_next_reads_from_what_a_transaction_has_committed(world, unique_name):
    await world.create(unique_name, PARTITIONS)
    for partition in range(PARTITIONS):
        await world.write(unique_name, partition, *(b"%d" % number for number in range(20)))
    one = await owner_of(world, unique_name, "one")
    await taken(world, [one], lambda: sum(map(len, one.records.values())) == 20 * PARTITIONS)
    assert all(one.values(partition) == [b"%d" % n for n in range(20)] for partition in range(PARTITIONS))
    await world.call(one.writer.open())
    await world.call(one.writer.write([], {2: Commit(18, "a note")}))
    assert await world.call(one.input.positions([1, 2])) == {2: Commit(18, "a note")}
    await ended(world, one)
    two = await owner_of(world, unique_name, "two")
    await taken(world, [two], lambda: len(two.values(2)) == 2 and len(two.values(1)) == 20)
    assert two.values(2) == [b"18", b"19"]
    await ended(world, two)


async def test_partitions_move_only_while_their_owner_takes(world, unique_name):
    await world.create(unique_name, PARTITIONS)
    one = await owner_of(world, unique_name, "one")
    await taken(world, [one], lambda: all_of(one))
    two = await owner_of(world, unique_name, "two")
    for _ in range(5):
        await world.call(two.input.take(100, 0.05))
    assert (len(one.partitions), two.partitions) == (PARTITIONS, set())
    await taken(world, [one, two], lambda: all_of(one, two))
    assert one.partitions.isdisjoint(two.partitions)
    for partition in range(PARTITIONS):
        await world.write(unique_name, partition, b"0", b"1")
    await taken(world, [one, two], lambda: all((one.values(p) or two.values(p))[1:] for p in range(PARTITIONS)))
    assert all((one.values(p) or two.values(p)) == [b"0", b"1"] for p in range(PARTITIONS))
    await ended(world, one)
    await taken(world, [two], lambda: all_of(two))
    await ended(world, two)


async def test_a_pause_holds_what_is_read_then_and_no_longer(world, unique_name):
    await world.create(unique_name, PARTITIONS)
    one = await owner_of(world, unique_name, "one")
    await taken(world, [one], lambda: all_of(one))
    one.input.pause()
    for partition in range(PARTITIONS):
        await world.write(unique_name, partition, b"0", b"1")
    for _ in range(5):
        assert not await world.call(one.input.take(100, 0.05))
    one.input.resume()
    await taken(world, [one], lambda: sum(map(len, one.records.values())) == 2 * PARTITIONS)
    one.input.pause()
    one.records = {partition: [] for partition in range(PARTITIONS)}
    await world.call(one.input.read_on({0: 1, 3: 0}))  # which is not paused
    await taken(world, [one], lambda: len(one.values(0)) == 1 and len(one.values(3)) == 2)
    assert (one.values(0), one.values(3)) == ([b"1"], [b"0", b"1"])
    await world.write(unique_name, 1, b"2")
    await world.write(unique_name, 3, b"2")
    await taken(world, [one], lambda: len(one.values(3)) == 3)
    assert not one.values(1)
    await ended(world, one)


async def test_a_position_that_the_log_lacks_is_judged_by_the_owner(world, unique_name):
    await world.create(unique_name, PARTITIONS)
    await world.write(unique_name, 3, b"0", b"1", b"2")
    await world.delete_before(unique_name, 3, 2)
    one = await owner_of(world, unique_name, "one")
    await taken(world, [one], lambda: one.values(3))
    assert one.judged == [(3, 0, (2, 3))]
    assert one.values(3) == [b"2"]
    await ended(world, one)


async def test_who_has_lost_its_place_hears_it_and_may_join_anew(world, unique_name):
    await world.create(unique_name, PARTITIONS)
    one = await owner_of(world, unique_name, "one")
    await taken(world, [one], lambda: all_of(one))
    again = await owner_of(world, unique_name, "one")
    await taken(world, [again], lambda: all_of(again))
    with pytest.raises(OustedError):
        await taken(world, [one, again], lambda: False)
    one.partitions.clear()
    await world.call(one.input.join(one))
    await world.write(unique_name, 0, b"0")
    await taken(world, [one], lambda: one.values(0))
    with pytest.raises(OustedError):
        await taken(world, [again], lambda: False)
    await ended(world, one)
