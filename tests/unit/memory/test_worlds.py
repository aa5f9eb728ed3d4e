"""The memory world by itself: the page that says how to write a test in it, and what loop and processes promise."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from spillway.agents.memory.groups import Group, Ticket
from spillway.agents.memory.input import MemoryInput
from spillway.agents.memory.loop import IdleError
from spillway.agents.memory.ports import (
    MemoryClock,
    MemoryExecutor,
    MemoryLog,
    MemoryOutput,
    MemoryTransactions,
)
from spillway.agents.memory.processes import AFTER, BEFORE
from spillway.agents.memory.records import kept
from spillway.agents.memory.world import DriverWorld
from spillway.lineage.errors import BrokerError, FencedError
from spillway.lineage.ports import Outgoing
from tests.followed import caught_up

ROOT = Path(__file__).parents[3]
PAGE = re.search(r"```python\n(.*?)```", (ROOT / "docs/worlds.md").read_text(), re.DOTALL)[1]


def test_the_page_runs_as_it_stands():
    exec(compile(PAGE, "docs/worlds.md", "exec"), {})


def test_a_seed_makes_the_same_run_whatever_the_hashes():
    text = PAGE.split("\nfor seed")[0] + "\nprint([outcome(seed) for seed in range(4)])"
    said = [
        subprocess.run(
            [sys.executable, "-c", text],
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            cwd=ROOT,
            capture_output=True,
            check=True,
            timeout=120,
        ).stdout
        for seed in (1, 2)
    ]
    assert said[0] == said[1] != b""


def test_a_killed_process_does_nothing_more_not_even_in_its_finally_clauses():
    world, did = DriverWorld(0, {"t": 1}), []

    async def main(process):
        output = MemoryOutput(world, process, lambda _tokens: None)
        try:
            await asyncio.sleep(1)
            process.kill()
            await asyncio.sleep(1)
        finally:
            did.append("finally")
            output.send(Outgoing("t", 0, None, b"after"), None)

    async def play():
        process = world.process("p")
        process.start(main(process))
        await asyncio.sleep(5)
        assert did == []

    world.run_until(play())
    assert world.broker.end(("t", 0)) == 0
    assert did == ["finally"]  # when the world ended, and what it sent reached nothing


@pytest.mark.parametrize(("strike", "stored"), [(BEFORE, 0), (AFTER, 1)])
def test_a_process_dies_at_a_call_before_it_takes_effect_or_after(strike, stored):
    for seed in range(20):  # what was under way may be lost with the process, too
        world, did = DriverWorld(seed, {"t": 1}), []

        async def main(process, world=world, did=did):
            output = MemoryOutput(world, process, lambda _tokens: None)
            process.strikes = lambda _process: strike
            output.send(Outgoing("t", 0, None, b"x"), None)
            did.append("went on")

        async def play(world=world):
            process = world.process("p")
            process.start(main(process))
            await asyncio.sleep(5)
            assert not process.alive

        world.run_until(play())
        assert did == []
        if world.broker.end(("t", 0)) == stored:
            return
    pytest.fail(f"a call struck {strike} its effect never left {stored} records")


def test_a_stopped_process_gets_what_came_when_it_goes_on():
    world, ticks = DriverWorld(0), []

    async def main():
        while True:
            await asyncio.sleep(1)
            ticks.append(int(world.now) % 100)

    async def play():
        process = world.process("p")
        process.start(main())
        await asyncio.sleep(2.5)
        process.stop()
        await asyncio.sleep(10)
        assert ticks == [1, 2]
        process.go_on()
        await asyncio.sleep(1.5)

    world.run_until(play())
    assert ticks == [1, 2, 12, 13]


def test_a_run_that_waits_for_nothing_is_an_error_and_a_spinning_one_lets_time_pass():
    with pytest.raises(IdleError):
        DriverWorld(0).run_until(asyncio.Event().wait())
    world = DriverWorld(0)

    async def spin():
        until = world.now + 0.001
        while world.now < until:  # noqa: ASYNC110 - it spins
            await asyncio.sleep(0)

    world.run_until(spin())


def test_functions_run_one_at_a_time_in_their_order():
    world, done = DriverWorld(3), []

    async def play():
        executor = MemoryExecutor()
        running = [executor.run(lambda number=number: done.append(number)) for number in range(10)]
        running[3].cancel()  # nobody waits for it, and it runs all the same
        await asyncio.gather(*running, return_exceptions=True)

    world.run_until(play())
    assert done == list(range(10))


def test_a_clock_may_be_ahead_and_chance_comes_from_the_seed():
    def seen(seed):
        world = DriverWorld(seed)

        async def play():
            clock = MemoryClock(world.process("p", ahead=2.0))
            assert clock.now() - world.now == pytest.approx(2.0)
            before = clock.monotonic()
            await asyncio.sleep(3)
            assert clock.monotonic() - before == pytest.approx(3.0)
            return world.random.randbytes(8)

        return world.run_until(play())

    assert seen(1) == seen(1) != seen(2)


def test_a_later_holder_of_a_transactional_id_fences_the_one_before():
    world = DriverWorld(0, {"t": 1})

    async def play():
        old, new = (MemoryTransactions(world, world.process("p"), "id", "g", lambda: Ticket(0)) for _ in range(2))
        await old.open()
        await new.open()
        with pytest.raises(FencedError):
            await old.write([Outgoing("t", 0, None, b"old")], {})
        await new.write([Outgoing("t", 0, None, b"new")], {})

    world.run_until(play())
    assert [one.value for one in world.broker.read(("t", 0), 0)] == [b"new"]


def test_a_log_is_followed_over_gaps_and_open_transactions_and_says_what_was_cut():
    world, came, cuts = DriverWorld(1, {"t": 1}, gaps=2), [], []

    async def main(process):
        log = MemoryLog(world, process)
        writer = MemoryTransactions(world, process, "tx", "g", lambda: Ticket(0))
        await writer.open()
        await writer.write([Outgoing("t", 0, b"k", b"1"), Outgoing("t", 0, b"k", b"2")], {})
        following = log.follow(("t", 0), 0, came.extend, cut=cuts.append)
        assert await caught_up(following) == world.broker.end(("t", 0))
        assert [record.value for record in came] == [b"1", b"2"]
        world.broker.append(("t", 0), kept(Outgoing("t", 0, None, b"3")))
        world.broker.delete_before(("t", 0), world.broker.end(("t", 0)))
        world.wake(("t", 0))
        await asyncio.sleep(1)
        log.follow(("t", 0), 0, came.extend, trouble=cuts.append)
        await asyncio.sleep(1)
        assert isinstance(cuts[-1], BrokerError)

    async def play():
        process = world.process("p")
        await process.start(main(process))

    world.run_until(play())
    assert len(came) + len(cuts) == 4


class Member:
    """An owner that notes what it is told."""

    def __init__(self, world, process, group, instance):
        self.input = MemoryInput(world, process, group, instance, self)
        self.partitions, self.errors, self.values = frozenset(), [], []

    async def run(self):
        self.input.start()
        await asyncio.Event().wait()

    async def assigned(self, partitions):
        self.partitions = partitions
        places = await self.input.positions(partitions)
        return {p: places[p].offset if p in places else 0 for p in partitions}

    async def revoked(self):
        self.partitions = frozenset()

    async def accept(self, records):
        self.values += [record.value for some in records.values() for record in some]

    def out_of_range(self, _partition, _position, bounds):
        return bounds.start

    def crashed(self, error):
        self.errors.append(error)


def test_partitions_go_to_who_is_there_and_come_back_to_a_static_member_at_once():
    world = DriverWorld(0, {"in": 4})
    group = Group(world, "g", "in")

    async def play():
        members, processes = {}, {}

        async def begin(name):
            processes[name] = world.process(name)
            members[name] = Member(world, processes[name], group, name)
            processes[name].start(members[name].run())
            await asyncio.sleep(2)

        await begin("a")
        assert members["a"].partitions == {0, 1, 2, 3}
        await begin("b")
        assert (members["a"].partitions, members["b"].partitions) == ({0, 2}, {1, 3})
        generation = group.generation
        processes["b"].kill()
        await begin("b")  # within its session, or after it
        assert members["b"].partitions == {1, 3}
        processes["b"].stop()
        await asyncio.sleep(3)
        assert members["a"].partitions == {0, 1, 2, 3}
        assert group.generation > generation
        old, stopped = members["b"], processes["b"]
        await begin("b")
        assert (members["a"].partitions, members["b"].partitions) == ({0, 2}, {1, 3})
        stopped.go_on()
        await asyncio.sleep(3)
        assert len(old.errors) == 1  # another has its instance id
        assert (members["a"].partitions, members["b"].partitions) == ({0, 2}, {1, 3})

    world.run_until(play())


class Beginner(Member):
    """Commits nothing, so that each assignment begins at the start; notes what each brought."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.brought = []

    async def assigned(self, partitions):
        self.brought.append(values := [])
        self.values = values
        return await super().assigned(partitions)


@pytest.mark.parametrize("seed", range(20))
def test_an_assignment_is_read_from_where_it_begins_whatever_was_being_fetched(seed):
    world = DriverWorld(seed, {"in": 1})
    group = Group(world, "g", "in")
    for number in range(2_000):
        world.broker.append(("in", 0), kept(Outgoing("in", 0, None, b"%d" % number)))
    members = [Beginner(world, world.process(name), group, name) for name in "ab"]

    async def play():
        for member, process in zip(members, world.processes, strict=True):
            process.start(member.run())
        while len(members[0].brought) < 20:
            await asyncio.sleep(0.3 * world.random.random())
            group.leave(group.join(f"c{world.now}", lambda: None))  # all are dealt to anew

    world.run_until(play())
    for values in members[0].brought:
        assert values == [b"%d" % number for number in range(len(values))]
