"""A journal of any run, replayed, asks for the same; and a core that decides otherwise is found out."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import pytest

from agents.core.actions import Ok
from agents.core.batching import Batcher
from agents.core.gate import GateCore
from agents.core.journal import JournaledGate, JournaledStage
from agents.core.loss import Loss
from agents.core.policies import make
from agents.core.policies.fifo import Fifo
from agents.core.policy import Refusal, StageState, StageView
from agents.core.replay import replay
from agents.core.stage import StageCore
from agents.sim.faults import Play, run
from lineage import reasons
from lineage.errors import UsageError
from tests.unit.core.builders import delivery
from tests.unit.faults.pipelines import SHAPES, faults, scenario


def journaled_run(shape, seed, **changes):
    """A run of which every core keeps a journal: [(a new core of the same make, the lines)]."""
    kept = []
    policy = changes.get("policy", "naive")

    class Stage(JournaledStage):
        def __init__(self, graph, stage, batcher, **options):
            lines = []
            super().__init__(graph, stage, batcher, journal=lines.append, **options)
            twin = Batcher(make(policy, StageView(stage=stage)), 4, 0.0, 2, Play.duration)
            kept.append((StageCore(graph, stage, twin, **options), lines))

    class Gate(JournaledGate):
        def __init__(self, graph, **options):
            lines = []
            super().__init__(graph, journal=lines.append, **options)
            kept.append((GateCore(graph, **options), lines))

    run(scenario(shape, stage_type=Stage, gate_type=Gate, **changes), seed)
    return kept


@pytest.mark.parametrize("name", ["chain", "diamond", "any", "branches-all"])
def test_every_core_of_a_stormy_run_replays_the_same(name):
    shape = SHAPES[name]
    storm = faults(shape, Random(name), 4)
    kept = journaled_run(
        shape,
        5,
        policy="expired",
        slo=0.3,
        repeats=0.1,
        faults=storm,
        poison=lambda stage, request_id: {"q4": "record", "q9": "model"}.get(request_id) if stage == "a" else None,
    )
    assert len(kept) > 2 * len(shape.edges) + 1
    for core, lines in kept:
        assert len(lines) > 1
        assert replay(lines, core) is None


def test_a_core_that_decides_otherwise_is_found_out():
    shape = SHAPES["diamond"]
    core, lines = next((core, lines) for core, lines in journaled_run(shape, 5) if json.loads(lines[0])[2] == "d")
    other = Batcher(make("naive", StageView(stage="d")), 1, 0.0, 2, Play.duration)  # smaller batches
    difference = replay(lines, StageCore(shape.graph(), "d", other, rule=shape.rules["d"], epoch=core.epoch))
    assert difference is not None
    assert difference.call == "runs"
    assert str(difference).startswith(f"line {difference.line}, runs: recorded")


def test_another_stages_journal_is_refused():
    shape = SHAPES["chain"]
    batcher = Batcher(make("naive", StageView(stage="b")), 4)
    with pytest.raises(UsageError, match="no journal of 'b'"):
        replay(['["journal", 1, "a"]'], StageCore(shape.graph(), "b", batcher))


def test_payloads_stay_out_of_the_journal():
    lines = [line for _, lines in journaled_run(SHAPES["chain"], 5, queries=3) for line in lines]
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
        return StageState(self.view.stage, 0, now, queueing=self._queued, waits=(0.1, 0.2), backlog=load.queued)

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


def heedful_core(kind=StageCore, policy=Heedful, **options):
    graph = SHAPES["chain"].graph()
    batcher = Batcher(policy(StageView(stage="a")), 2, 0.25)
    return kind(graph, "a", batcher, **options)


def test_what_a_policy_heard_of_the_others_is_replayed():
    lines = []
    assert played(heedful_core(JournaledStage, journal=lines.append)) > 10
    assert sum(json.loads(line)[0] == "tick" for line in lines) == 20
    assert replay(lines, heedful_core()) is None


def test_a_word_that_is_left_out_is_found_out():
    lines = []
    played(heedful_core(JournaledStage, journal=lines.append))
    deaf = [line for line in lines if json.loads(line)[0] != "tick"]
    assert replay(deaf, heedful_core()) is not None


def test_a_policy_that_tells_otherwise_is_found_out():
    class Boastful(Heedful):
        def report(self, now, load):
            return replace(super().report(now, load), backlog=0, queueing=0.0)

    lines = []
    played(heedful_core(JournaledStage, journal=lines.append))
    difference = replay(lines, heedful_core(policy=Boastful))
    assert difference is not None
    assert difference.call == "report"


def test_what_was_read_again_is_replayed():
    def core(kind=StageCore, **options):
        batcher = Batcher(make("naive", StageView(stage="d")), 1, 0.0)
        shape = SHAPES["diamond"]
        return kind(shape.graph(), "d", batcher, rule=shape.rules["d"], payload_bytes=150, **options)

    lines = []
    written = core(JournaledStage, journal=lines.append)
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
    assert replay([*told, '["emits",[]]'], core()) is not None
