"""Random failures of pipelines with stateful stages, in every mode: every promise is kept.

More of them: `spillway prove`. A seed that fails is replayed by `spillway prove --seed N`.
"""

from dataclasses import replace
from random import Random

import pytest

from spillway.agents.proof.shards.oracle import Judge, prove
from spillway.agents.proof.shards.play import Play
from spillway.agents.proof.shards.schedule.drawing import DRAWN, drawn, random_topology
from spillway.agents.proof.shards.schedule.scenario import POINTS, TOPOLOGIES, Fault, Kind, Scenario
from spillway.checkpoint.modes import MODES
from spillway.topology.load import parse
from tests.oracle import outcome_problems, repetition_problems
from tests.unit.proof.shards.mutations import stateless

FAILED_ONCE: tuple[int, ...] = ()  # seeds that showed a bug: put one here with the fix


@pytest.fixture(scope="module")
def proof():
    return prove(range(1_000))


def test_every_promise_is_kept():
    proof = prove([*range(25), *FAILED_ONCE])
    assert proof.failed == {}
    assert set(proof.topologies) == {*TOPOLOGIES, DRAWN}
    assert set(proof.modes) == set(MODES)


@pytest.mark.parametrize("seeds", [20, pytest.param(100, marks=pytest.mark.nightly)])
def test_every_promise_is_kept_without_states(seeds):
    struck = 0
    for seed in range(seeds):
        play = Play(stateless(seed), seed).run()
        assert Judge(play).judge() == [], f"seed {seed}"
        struck += len(play.result.struck)
    assert struck > 3 * seeds


@pytest.mark.nightly
def test_every_promise_is_kept_over_many_schedules(proof):
    assert proof.failed == {}


@pytest.mark.nightly
def test_the_schedules_are_worth_the_name(proof):
    """Failures at each point of primaries and of what backups do, and what follows."""
    for point in POINTS:
        assert any(what.endswith(f" at {point}") for what in proof.struck), point
    for what in ("contaminated", "goes back itself", "stood down", "sent again", "replayed", "lease regained"):
        assert proof.counts[what] > 5, what
    assert proof.counts["reigns"] > 2 * proof.schedules


@pytest.mark.parametrize("seed", range(2))
def test_a_run_follows_from_its_seed(seed):
    scenario = drawn(seed)
    first, again = Play(scenario, seed).run(), Play(scenario, seed).run()
    assert first.result == again.result


@pytest.mark.parametrize("mode", MODES.values(), ids=list(MODES))
@pytest.mark.parametrize("topology", TOPOLOGIES.values(), ids=list(TOPOLOGIES))
def test_without_failures_there_is_one_reign_of_each_shard(topology, mode):
    play = Play(Scenario(topology, mode, deterministic=True), 1).run()
    assert Judge(play).judge() == []
    assert play.result.counts["reigns"] == len(topology.states)


@pytest.mark.parametrize("backup", [True, False], ids=["and the next backup", "alone"])
def test_figure_6_the_first_state_is_late_and_its_primary_dies(backup):
    """What the second stage made of it is lost with it; where its backup is gone it goes back itself (rule 14)."""
    faults = [
        Fault(Kind.SLOW, "a", "primary", 0.15, seconds=1.0),
        Fault(Kind.CRASH, "a", "primary", 0.35, seconds=0.5),
    ]
    if backup:
        faults.append(Fault(Kind.CRASH, "b", "backup", 0.2, seconds=2.0))
    contaminated = alone = 0
    for seed in range(10):
        play = Play(Scenario(TOPOLOGIES["fig6"], faults=tuple(faults)), seed).run()
        assert Judge(play).judge() == []
        contaminated += play.result.counts.get("contaminated", 0)
        alone += play.result.counts.get("goes back itself", 0)
    assert contaminated > 3
    assert alone > 3 if backup else alone < contaminated


# HAMS, Figs. 2 and 3: what recovery by replay comes to --------------------------------------------------------------

REPLAYED = Scenario(
    mode=MODES["lineage-stash"],
    deterministic=True,
    every=8,
    faults=(Fault(Kind.CRASH, "a", "primary", 0.3, seconds=0.3), Fault(Kind.CRASH, "b", "primary", 0.4, seconds=0.3)),
)


def test_replay_diverges_where_the_model_draws():
    """With a log of batches alone, a model with randomness of its own contradicts itself."""
    assert all(Judge(Play(REPLAYED, seed).run()).judge() == [] for seed in range(8))
    drawing = replace(REPLAYED, deterministic=False)
    broken = [Judge(Play(drawing, seed).run()).judge() for seed in range(8)]
    assert sum(map(bool, broken)) > 4


# The oracle itself: it sees each kind of wrong, and nothing else.

RIGHT = [("q1", "prediction", 1), ("q2", "dropped", "expired")]


def right(request_id, kind, told):
    return (request_id, kind, told) in RIGHT


def test_outcomes():
    accepted = ["q1", "q2"]
    assert outcome_problems(accepted, RIGHT, right) == []
    assert outcome_problems(accepted, RIGHT[:1], right) == ["q2: no outcome"]
    assert outcome_problems(accepted, [*RIGHT, RIGHT[0]], right) == ["q1: 2 outcomes"]
    assert outcome_problems(["q1"], RIGHT, right) == ["q2: outcome of a query that nobody sent"]
    wrong = [RIGHT[0], ("q2", "prediction", 1)]
    assert outcome_problems(accepted, wrong, right) == ["q2: wrong outcome prediction 1"]


def test_repetitions():
    once = [("a", "q1", 11), ("b", "q1", 21), ("a", "q2", 11)]
    assert repetition_problems(once, replaced=()) == []
    assert repetition_problems([*once, ("a", "q1", 12)], replaced={"a"}) == []
    assert len(repetition_problems([*once, ("a", "q1", 12)], replaced={"b"})) == 1
    assert len(repetition_problems([*once, ("a", "q1", 11)], replaced={"a"})) == 1


# The pipelines that `spillway prove` draws: whatever `spillway check` takes of graphs, choices and joins.


def written(edges, choosers=(), sinks=None, states=()):
    lines = ["name: p", "slo: 1.0", "partitions: 3", *([f"sinks: {sinks}"] if sinks else []), "stages:"]
    for name, before in edges.items():
        lines += [f"  - name: {name}", "    model: m:M", f"    after: [{', '.join(before)}]"]
        lines += ["    choose: m:choose"] if name in choosers else []
        lines += ["    state: shared"] if name in states else []
    return "\n".join(lines)


def test_every_pipeline_that_is_drawn_is_taken():
    drawn = [random_topology(Random(seed), 3) for seed in range(300)]
    for topology in drawn:
        parse(written(topology.edges, topology.choices, topology.sinks, topology.states))
    rules = {(rule.mode, rule.on_loss) for topology in drawn for rule in topology.rules.values()}
    assert rules == {("all", "drop"), ("all", "partial"), ("any", "drop")}
    assert {topology.sinks for topology in drawn} == {None, "any", "all"}
    assert sum(bool(topology.choices) for topology in drawn) > 30
    assert sum(bool(topology.keyed) for topology in drawn) > 30
    assert sum(set(topology.shards.values()) > {1} for topology in drawn) > 10
