"""Partitions that come to a gate: the version logs are read to their ends before anything is remembered."""

from types import SimpleNamespace

import pytest

from spillway.agents.live.gate.blocking import block, complete
from spillway.agents.live.gate.states import GateStates
from spillway.agents.run import gate_memory
from spillway.agents.run.gate_context import GateTopics
from spillway.lineage.errors import BrokerError
from spillway.lineage.ports import Bounds, Commit
from tests.unit.live.endless_inputs import endless

PLACES = (("learn", 0), ("learn", 1))


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


def test_the_gate_hears_the_logs_while_it_waits_for_their_ends(monkeypatch):
    monkeypatch.setattr("spillway.agents.live.gate.states._WITHIN", 0.01)
    log = Log()
    states = GateStates(log.through, "p", PLACES, block)
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
