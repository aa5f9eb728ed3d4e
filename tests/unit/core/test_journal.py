"""A journal of any run, replayed, asks for the same; and a core that decides otherwise is found out."""

from __future__ import annotations

import json
from random import Random

import pytest

from agents.core.batching import Batcher
from agents.core.gate import GateCore
from agents.core.journal import JournaledGate, JournaledStage
from agents.core.policies import make
from agents.core.policy import StageView
from agents.core.replay import replay
from agents.core.stage import StageCore
from agents.sim.faults import Play, run
from lineage.errors import UsageError
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
