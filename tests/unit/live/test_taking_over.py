"""Partitions that come: the version logs are read to their ends before anything is remembered, and others go on."""

import asyncio
from types import SimpleNamespace

import pytest

from spillway.agents.live.gate.blocking import block, complete
from spillway.agents.live.gate.states import GateStates
from spillway.agents.run import gate_memory
from spillway.agents.run.gate_context import GateTopics
from spillway.agents.run.stage import Stage
from spillway.agents.run.stage_context import Context
from spillway.lineage.errors import BrokerError
from spillway.lineage.ports import Bounds, Commit
from tests.unit.live.endless_inputs import endless

PLACES = (("learn", 0), ("learn", 1))


# A stage -------------------------------------------------------------------------------------------------------------


class Core:
    """Notes what it is told, in order."""

    depth, room = 0, True
    unsettled = 0

    def __init__(self):
        self.told = []
        self.stats = SimpleNamespace(received=0, duplicates=0)

    def assign(self, partition, committed, _note):
        self.told.append(("assign", partition))
        return ((0, committed),)

    def remember(self, delivery):
        self.told.append(("remember", delivery))

    def deliver(self, _now, delivery):
        self.told.append(("deliver", (delivery.partition, delivery.offset)))

    def revoke(self, _now, partition):
        self.told.append(("revoke", partition))


class Memory:
    async def read(self, partition, _spans):
        yield (partition, 4)


class Input:
    async def positions(self, partitions):
        return dict.fromkeys(partitions, Commit(5, ""))

    async def bounds(self, partitions):
        return dict.fromkeys(partitions, Bounds(0, 1 << 60))


class Logs:
    def __init__(self):
        self.asked, self.read = 0, asyncio.Event()

    async def __call__(self):
        self.asked += 1
        await self.read.wait()


def driver(core, logs):
    context = Context(
        intake=SimpleNamespace(
            delivery=lambda record: SimpleNamespace(partition=record.partition, offset=record.offset, offline=False)
        ),
        emission=None,
        memory=Memory(),
        metrics=SimpleNamespace(
            intake=SimpleNamespace(observe=lambda _took: None),
            transfer=SimpleNamespace(hear=lambda _now, _took: None),
            committed={},
        ),
        tally=None,
        inputs=endless(),
        guard=SimpleNamespace(look=lambda _committed: None),
        remembered=None,
        rereading=SimpleNamespace(begin=lambda *_: None),
        reload_schemas=bool,
        read_logs=logs,
    )
    stage = Stage(core, SimpleNamespace(now=lambda: 1.0), context)
    stage.start(Input(), None, None)
    return stage


def chunk(*places):
    parts = {}
    for partition, offset in places:
        parts.setdefault(partition, []).append(SimpleNamespace(partition=partition, offset=offset, timestamp=0))
    return parts


async def settle():
    for _ in range(20):
        await asyncio.sleep(0)


def played(play):
    async def run():
        core, logs = Core(), Logs()
        made = driver(core, logs)
        await play(made, core, logs)
        assert not made.failed.done()

    asyncio.run(run())


def test_what_is_owned_goes_on_while_another_partition_is_taken_over():
    async def play(stage, core, logs):
        logs.read.set()
        await stage.assigned(frozenset({0}))
        await settle()
        logs.read.clear()
        await stage.assigned(frozenset({0, 1}))
        core.told.clear()
        await asyncio.wait_for(stage.accept(chunk((1, 5), (0, 5))), 60)
        await asyncio.wait_for(stage.accept(chunk((0, 6), (1, 6), (1, 7))), 60)
        assert core.told == [("deliver", (0, 5)), ("deliver", (0, 6))]
        assert stage.idle
        core.told.clear()
        logs.read.set()
        await settle()
        assert core.told == [("assign", 1), ("remember", (1, 4)), *(("deliver", (1, n)) for n in (5, 6, 7))]
        await stage.accept(chunk((1, 8)))
        assert core.told[-1] == ("deliver", (1, 8))

    played(play)


def test_what_was_set_aside_goes_with_its_partition_and_when_the_stage_stops():
    async def play(stage, core, logs):
        async def stop():
            stage.stop_taking()

        for end in (lambda: stage.assigned(frozenset()), stop):
            logs.read.clear()
            await stage.assigned(frozenset({1}))
            await asyncio.wait_for(stage.accept(chunk((1, 5))), 60)
            await end()
            logs.read.set()
            await settle()
        assert not [told for told in core.told if told[0] == "deliver"]
        assert stage.idle

    played(play)


# The gate ------------------------------------------------------------------------------------------------------------


class Log:
    """A log that is read to its end when the test says so."""

    def __init__(self):
        self.wishes = []

    def through(self, post):
        self.post = post
        return self

    def follow(self, *_where, **_told):
        return self

    def when_read(self, then):
        self.wishes.append(then)

    def reach(self):
        for then in self.wishes:
            self.post(then, 0)
        self.wishes.clear()


async def reaching(log, states):
    async def sleep(_seconds):
        log.reach()

    states._sleep = sleep
    await states.read_to_ends()
    assert states.news()
    await states.await_ends(lambda: False)


def test_the_gate_hears_the_logs_while_it_waits_for_their_ends():
    log = Log()
    states = GateStates(log.through, "p", PLACES, block, within=0.01)
    with pytest.raises(BrokerError, match="could not be read to their ends within 0 s"):
        complete(states.read_to_ends())
    complete(reaching(log, states))


class Port:
    """Notes what it is asked, in order; answers as the ports of a gate do."""

    def __init__(self, order):
        self.order = order

    async def positions(self, partitions):
        self.order.append("committed")
        return {partition: Commit(5, "") for partition in partitions}

    async def read_to_ends(self):
        self.order.append("logs")

    async def bounds(self, topic, partitions):
        self.order.append(f"ends of {topic}")
        return dict.fromkeys(partitions, Bounds(0, 9))

    async def read(self, topic, _spans, *, values):
        assert not values
        yield [SimpleNamespace(partition=0, offset=1, timestamp=1, topic=topic)]


def test_a_gate_reads_the_logs_after_the_committed_offsets_and_before_it_remembers():
    order = []
    port = Port(order)
    core = SimpleNamespace(
        assign=lambda *_: order.append("assign") or (((2, 3),), 0),
        recall=lambda *_: order.append("recall"),
        remember=lambda _delivery: order.append("remember"),
    )
    context = SimpleNamespace(
        topics=GateTopics("o", "e", "d"),
        input=port,
        spans=port,
        versions=port,
        wire=SimpleNamespace(envelope=lambda _record: 1, released=lambda _record: ("q", 1.0)),
        inputs=endless(),
    )
    assert complete(gate_memory.load(context, core, [0])) == {0: Commit(5, "")}
    assert order == ["committed", "logs", "ends of o", "ends of e", "assign", "recall", "remember"]
