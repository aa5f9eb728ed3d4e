"""What `Input` and `Output` promise, in memory and on Kafka."""

import asyncio

from spillway.lineage.ports import Commit, Outgoing
from tests.followed import caught_up


class Owner:
    """Commits what it is told to, and notes what it is given."""

    def __init__(self, name):
        self.name = name
        self.partitions = frozenset()
        self.records = []  # of all assignments
        self.now = {}  # values by partition of this assignment
        self.starts = {}
        self.errors, self.judged = [], []
        self.held = asyncio.Event()
        self.held.set()
        self.input = None  # `world.join` fills it in
        self.last = {}  # what it commits when it lets go

    async def assigned(self, partitions):
        places = await self.input.positions(partitions)
        self.partitions = partitions
        self.now = {partition: [] for partition in partitions}
        self.starts = {p: places[p].offset if p in places else 0 for p in partitions}
        return self.starts

    async def revoked(self):
        if self.last:
            await self.input.commit({p: commit for p, commit in self.last.items() if p in self.partitions})
        self.partitions = frozenset()

    async def accept(self, records):
        for partition, some in records.items():
            assert partition in self.partitions, f"a record of {partition}, which is not {self.name}'s"
            self.records += some
            self.now[partition] += [record.value for record in some]
        await self.held.wait()

    def out_of_range(self, partition, position, bounds):
        self.judged.append((partition, position, bounds))
        return bounds.start

    def crashed(self, error):
        self.errors.append(error)


def all_of(owners):
    return frozenset().union(*(owner.partitions for owner in owners))


async def joining(world, topic, name):
    owner = Owner(name)
    await world.join(topic, f"{topic}.group", f"{topic}.{name}", owner)
    return owner


async def joined(world, topic, *names):
    owners = []
    for name in names:
        owners.append(await joining(world, topic, name))
        await world.until(lambda: all(each.partitions for each in owners) and len(all_of(owners)) == 4)
    return owners


async def ended(*owners):
    for owner in owners:
        await owner.input.close(leave=True)


async def test_each_partition_comes_in_order_to_whom_it_is_dealt(world, unique_name):
    await world.create(unique_name, 4)
    one, two = await joined(world, unique_name, "one", "two")
    for number in range(20):
        await world.write(unique_name, number % 4, b"%d" % number)
    await world.until(lambda: sum(len(v) for owner in (one, two) for v in owner.now.values()) == 20)
    got = {p: values for owner in (one, two) for p, values in owner.now.items()}
    assert got == {p: [b"%d" % number for number in range(p, 20, 4)] for p in range(4)}
    assert one.partitions.isdisjoint(two.partitions)
    await ended(one, two)


async def test_who_comes_next_reads_from_what_was_committed_with_its_note(world, unique_name):
    await world.create(unique_name, 4)
    (one,) = await joined(world, unique_name, "one")
    await world.write(unique_name, 2, b"0", b"1", b"2")
    await world.until(lambda: len(one.now[2]) == 3)
    assert await one.input.commit({2: Commit(2, "a note")})
    assert await one.input.positions([1, 2]) == {2: Commit(2, "a note")}
    assert await one.input.bounds([1, 2]) == {1: (0, 0), 2: (0, 3)}
    await ended(one)
    (two,) = await joined(world, unique_name, "two")
    await world.until(lambda: two.now[2])
    assert two.now[2] == [b"2"]
    await ended(two)


async def test_a_commit_while_letting_go_lands_and_one_after_it_does_not(world, unique_name):
    await world.create(unique_name, 4)
    (one,) = await joined(world, unique_name, "one")
    await world.write(unique_name, 0, b"0", b"1", b"2")
    await world.until(lambda: len(one.now[0]) == 3)
    one.last = {0: Commit(1, "")}
    was = one.partitions
    two = await joining(world, unique_name, "two")
    await world.until(lambda: two.partitions and one.partitions and one.partitions != was)
    lost, kept = (two, one) if 0 in two.partitions else (one, two)
    await world.until(lambda: lost.now.get(0))
    assert lost.now[0] == [b"1", b"2"]
    assert not await kept.input.commit({0: Commit(3, "")})
    assert (await lost.input.positions([0]))[0].offset == 1
    await ended(one, two)


async def test_no_record_of_an_assignment_comes_after_it(world, unique_name):
    await world.create(unique_name, 4)
    (one,) = await joined(world, unique_name, "one")
    one.held.clear()
    for partition in range(4):
        await world.write(unique_name, partition, *(b"%d" % number for number in range(300)))
    await world.until(lambda: one.records)
    await world.stalled(one.input)
    two = await joining(world, unique_name, "two")
    await world.until(lambda: two.partitions)
    one.held.set()  # `accept` asserts that what comes is its own
    await world.until(lambda: one.partitions and len(all_of((one, two))) == 4)
    await world.until(lambda: all(len(v) == 300 for owner in (one, two) for v in owner.now.values()))
    assert all(values == [b"%d" % n for n in range(300)] for o in (one, two) for values in o.now.values())
    await ended(one, two)


async def test_a_static_member_that_comes_back_gets_its_partitions_and_nobody_else_does(world, unique_name):
    await world.create(unique_name, 4)
    one, two = await joined(world, unique_name, "one", "two")
    had = one.partitions
    await two.input.close(leave=False)
    again = await joining(world, unique_name, "two")
    await world.until(lambda: again.partitions)
    assert (one.partitions, again.partitions) == (had, frozenset(range(4)) - had)
    await ended(one, again)


async def test_a_position_that_the_log_lacks_is_judged(world, unique_name):
    await world.create(unique_name, 4)
    await world.write(unique_name, 3, b"0", b"1", b"2")
    await world.delete_before(unique_name, 3, 2)
    (one,) = await joined(world, unique_name, "one")
    await world.until(lambda: one.now[3])
    assert one.judged[0] == (3, 0, (2, 3))
    assert one.now[3] == [b"2"]
    await ended(one)


async def test_what_is_sent_is_stored_in_order_and_told_of(world, unique_name):
    stored, came = [], []
    await world.create(unique_name, 2)
    output = await world.output(stored.extend)
    for number in range(100):
        output.send(Outgoing(unique_name, number % 2, b"k", b"%d" % number, (("h", b"x"),)), number)
    await output.close()
    log = await world.log()
    for partition in range(2):
        await caught_up(log.follow((unique_name, partition), 0, came.extend))
    await log.close()
    assert sorted(stored) == list(range(100))
    for partition in range(2):
        assert [n for n in stored if n % 2 == partition] == list(range(partition, 100, 2))
        values = [record.value for record in came if record.partition == partition]
        assert values == [b"%d" % number for number in range(partition, 100, 2)]
    assert {record.headers for record in came} == {(("h", b"x"),)}
