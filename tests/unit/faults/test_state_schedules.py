"""Random failures of pipelines with stateful stages, in every mode: every promise is kept.

More of them: `spillway prove`. A seed that fails is replayed by `spillway prove --seed N`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from agents.sim.faults.oracle import problems, prove
from agents.sim.faults.play import run
from agents.sim.faults.schedule.drawing import DRAWN, drawn
from agents.sim.faults.schedule.scenario import POINTS, TOPOLOGIES, Fault, Kind, Scenario
from checkpoint.modes import MODES
from tests.unit.faults.mutations import stateless

FAILED_ONCE: tuple[int, ...] = ()  # seeds that showed a bug: put one here with the fix


@pytest.fixture(scope="module")
def proof():
    return prove(range(1_000))


def test_every_promise_is_kept():
    proof = prove([*range(150), *FAILED_ONCE])
    assert proof.failed == {}
    assert set(proof.topologies) == {*TOPOLOGIES, DRAWN}
    assert set(proof.modes) == set(MODES)


def test_every_promise_is_kept_without_states():
    struck = 0
    for seed in range(100):
        play = run(stateless(seed), seed)
        assert problems(play) == [], f"seed {seed}"
        struck += len(play.result.struck)
    assert struck > 300


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


@pytest.mark.parametrize("seed", range(4))
def test_a_run_follows_from_its_seed(seed):
    scenario = drawn(seed)
    first, again = run(scenario, seed), run(scenario, seed)
    assert first.result == again.result


@pytest.mark.parametrize("mode", MODES.values(), ids=list(MODES))
@pytest.mark.parametrize("topology", TOPOLOGIES.values(), ids=list(TOPOLOGIES))
def test_without_failures_there_is_one_reign_of_each_shard(topology, mode):
    play = run(Scenario(topology, mode, deterministic=True), 1)
    assert problems(play) == []
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
    for seed in range(12):
        play = run(Scenario(TOPOLOGIES["fig6"], faults=tuple(faults)), seed)
        assert problems(play) == []
        contaminated += play.result.counts.get("contaminated", 0)
        alone += play.result.counts.get("goes back itself", 0)
    assert contaminated > 6
    assert alone > 6 if backup else alone < contaminated


# HAMS, Figs. 2 and 3: what recovery by replay comes to --------------------------------------------------------------

REPLAYED = Scenario(
    mode=MODES["lineage-stash"],
    deterministic=True,
    every=8,
    faults=(Fault(Kind.CRASH, "a", "primary", 0.3, seconds=0.3), Fault(Kind.CRASH, "b", "primary", 0.4, seconds=0.3)),
)
BARE = Scenario(
    replace(TOPOLOGIES["chain"], states=()),
    deterministic=True,
    partitions=1,
    batch=1,
    bare=("a", "b"),
    faults=(Fault(Kind.CRASH, "a", at=0.25, seconds=0.1),),
)


@pytest.mark.parametrize("scenario", [REPLAYED, BARE], ids=["lineage-stash", "none"])
def test_replay_diverges_where_the_model_draws(scenario):
    """Without the protocol, or with a log of batches alone, a model with randomness of its own contradicts itself."""
    assert all(problems(run(scenario, seed)) == [] for seed in range(12))
    drawing = replace(scenario, deterministic=False)
    broken = [problems(run(drawing, seed)) for seed in range(12)]
    assert sum(map(bool, broken)) > 6
