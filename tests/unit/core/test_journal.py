"""A journal of any run, replayed, asks for the same; and a core that decides otherwise is found out."""

import json
from array import array
from dataclasses import replace
from random import Random

import pytest

from spillway.agents.core.actions import Ok
from spillway.agents.core.batching import Batcher
from spillway.agents.core.gate import GateCore
from spillway.agents.core.journal import Recorded, replay
from spillway.agents.core.policies import make
from spillway.agents.core.policies.fifo import Fifo
from spillway.agents.core.policy import Refusal, StageState, StageView
from spillway.agents.core.request import Loss
from spillway.agents.core.stage import StageCore
from spillway.agents.sim.faults.play import run
from spillway.agents.sim.faults.schedule.scenario import TOPOLOGIES, Guards
from spillway.agents.sim.faults.world.world import StateWorld
from spillway.lineage import reasons
from spillway.lineage.errors import UsageError
from tests.unit.core.builders import delivery
from tests.unit.core.shapes import SHAPES
from tests.unit.faults.mutations import stateless


def journaled_run(seed, topology=None, **changes):
    """A run of which every core keeps a journal: [(a new core of the same make, the lines)]."""
    kept = []
    scenario = replace(stateless(seed, topology), **changes)

    def recorded(core, fresh):
        lines = []
        kept.append((fresh, lines))
        return Recorded(core, lines.append)

    def stage(graph, name, batcher, **options):
        twin = Batcher(make(scenario.stateless_policy, StageView(stage=name)), 4, 0.0, 2, StateWorld.duration)
        return recorded(StageCore(graph, name, batcher, **options), StageCore(graph, name, twin, **options))

    def gate(graph, **options):
        return recorded(GateCore(graph, **options), GateCore(graph, **options))

    run(replace(scenario, guards=Guards(stage=stage, gate=gate)), seed)
    return kept


@pytest.mark.parametrize("seed", range(12))
def test_every_core_of_a_stormy_run_replays_the_same(seed):
    kept = journaled_run(seed)
    assert sum(len(lines) for _, lines in kept) > 100
    for core, lines in kept:
        assert replay(lines, core) is None


def test_a_core_that_decides_otherwise_is_found_out():
    topology = TOPOLOGIES["diamond"]
    core, lines = next((core, lines) for core, lines in journaled_run(5, topology) if json.loads(lines[0])[2] == "d")
    other = Batcher(make("naive", StageView(stage="d")), 1, 0.0, 2, StateWorld.duration)  # smaller batches
    difference = replay(lines, StageCore(topology.graph(), "d", other, rule=topology.rules["d"], epoch=core.epoch))
    assert difference is not None
    assert difference.call == "take_runs"
    assert str(difference).startswith(f"line {difference.line}, take_runs: recorded")


def test_another_stages_journal_is_refused():
    shape = SHAPES["chain"]
    batcher = Batcher(make("naive", StageView(stage="b")), 4)
    with pytest.raises(UsageError, match="not a journal of 'b'"):
        replay(['["journal", 1, "a"]'], StageCore(shape.graph(), "b", batcher))


def test_payloads_stay_out_of_the_journal():
    lines = [line for _, lines in journaled_run(5, TOPOLOGIES["chain"], queries=3) for line in lines]
    assert all(isinstance(json.loads(line), list) for line in lines)
    assert not any('"value"' in line for line in lines)


class Heedful(Fifo):
    """Decides by what it was told of the others: drops the more, the longer they say they queue."""

    __slots__ = ("_limit", "_queued")

    def __init__(self, view):
        super().__init__(view)
        self._limit = 1.0
        self._queued = 0.0

    def judge(self, now, starts, request):
        self._queued = now - request.arrived
        return Refusal(reasons.EXPIRED) if self._queued > self._limit else None

    def report(self, now, load):
        return StageState(
            self.view.stage, 0, now, queueing=self._queued, waits=array("d", (0.1, 0.2)), backlog=load.queued
        )

    def tick(self, now, load, states):
        self._limit = 0.05 + sum(state.queueing + sum(state.waits) for told in states.values() for state in told)


def played(core):
    """Requests, with the words of others in between; returns what was dropped."""
    core.assign(0, 0)
    random = Random(3)
    dropped = 0
    running = []
    for step in range(200):
        now = 100.0 + step * 0.02
        core.deliver(now, delivery(f"q{step}", step))
        if step % 7 == 0:  # an instance that is slow, so that requests queue
            for batch in running:
                core.complete(now, batch, [Ok({"b": b""})] * len(batch.requests), 0.01)
            running = []
        running += core.take_runs()
        emits = core.take_emits()
        dropped += sum(emit.loss is not None for emit in emits)
        core.acked_all(emits)
        if step % 10 == 0:
            told = core.report(now)
            assert told is not None
            other = StageState("b", 1, now, queueing=random.random() / 100, waits=(random.random() / 50,))
            core.tick(now, {"a": [told], "b": [other]} if step % 20 else {})
    return dropped


def heedful_core(policy=Heedful):
    return StageCore(SHAPES["chain"].graph(), "a", Batcher(policy(StageView(stage="a")), 2, 0.25))


def test_what_a_policy_heard_of_the_others_is_replayed():
    lines = []
    assert played(Recorded(heedful_core(), lines.append)) > 10
    assert sum(json.loads(line)[0] == "tick" for line in lines) == 20
    assert replay(lines, heedful_core()) is None


def test_what_was_read_again_is_replayed():
    def core():
        batcher = Batcher(make("naive", StageView(stage="d")), 1, 0.0)
        shape = SHAPES["diamond"]
        return StageCore(shape.graph(), "d", batcher, rule=shape.rules["d"], payload_bytes=150)

    lines = []
    written = Recorded(core(), lines.append)
    written.assign(0, 0)
    for offset in range(6):
        sender = "b" if offset < 3 else "c"
        written.deliver(100.0, delivery(f"q{offset % 3}", offset, sender, size=100))
    fetches = written.take_fetches()
    assert [fetch.offset for fetch in fetches] == [1, 2]
    written.fetched(101.0, fetches[0], "again")
    written.fetched(101.0, fetches[1], "again", Loss("failed", reasons.PART_GONE))
    written.acked_all(written.take_emits())
    assert replay(lines, core()) is None
    told = [line for line in lines if json.loads(line)[0] != "fetched"]
    assert replay([*told, '["take_emits",[],{}]'], core()) is not None
