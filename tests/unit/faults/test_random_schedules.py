"""Random crashes, zombies, rebalances and aborts over every shape of pipeline: nothing lost, nothing twice."""

from __future__ import annotations

from random import Random

import pytest

from agents.sim.faults import run
from tests.unit.faults.pipelines import SHAPES, faults, problems, scenario

SEEDS = 12


def poisoned(salt: float):
    """About a tenth of what each stage gets cannot be read, or makes its model raise."""

    def how(stage: str, request_id: str) -> str | None:
        chance = Random(f"{salt} {stage} {request_id}").random()
        return "record" if chance < 0.05 else "model" if chance < 0.1 else None

    return how


@pytest.mark.parametrize("name", SHAPES)
def test_every_query_is_answered_once_and_right(name):
    shape = SHAPES[name]
    struck = repeated = 0
    for seed in range(SEEDS):
        random = Random(f"{name} {seed}")
        done = run(
            scenario(
                shape,
                repeats=0.1,
                commit_every=random.choice((0.02, 0.1, 0.3)),
                faults=faults(shape, random, random.randint(1, 5)),
            ),
            seed,
        )
        assert problems(shape, done) == [], f"seed {seed}"
        struck += done.faults
        repeated += done.duplicates
    assert struck > SEEDS
    assert repeated > SEEDS


@pytest.mark.parametrize("name", SHAPES)
def test_drops_and_poison_end_each_query_once_too(name):
    shape = SHAPES[name]
    for seed in range(SEEDS):
        random = Random(f"{name} {seed} losses")
        done = run(
            scenario(
                shape,
                repeats=0.1,
                policy=("expired", "hbf", "lbf", "split")[seed % 4],
                slo=random.choice((0.15, 0.3, 0.6)),
                rate=random.choice((200.0, 600.0)),
                poison=poisoned(random.random()),
                commit_every=random.choice((0.02, 0.1, 0.3)),
                faults=faults(shape, random, random.randint(1, 5)),
            ),
            seed,
        )
        reasons = {"expired", "too-late", "over-share", "bad-input", "model-raised"}
        assert problems(shape, done, losses=reasons) == [], f"seed {seed}"


@pytest.mark.parametrize("name", SHAPES)
def test_a_run_follows_from_its_seed(name):
    shape = SHAPES[name]
    first, again = (run(scenario(shape, faults=faults(shape, Random(name), 4)), 7) for _ in range(2))
    assert first == again


def test_without_faults_every_stage_executes_every_query_once():
    shape = SHAPES["diamond"]
    done = run(scenario(shape), 3)
    assert problems(shape, done) == []
    assert len(done.executions) == 4 * len(done.accepted)
    assert done.duplicates == 0


def test_poison_reaches_the_partner_as_a_tombstone_and_not_as_a_timeout():
    shape = SHAPES["diamond"]
    lost = {"q3": "record", "q5": "model"}
    done = run(scenario(shape, poison=lambda stage, request_id: lost.get(request_id) if stage == "b" else None), 3)
    assert problems(shape, done, losses={"q3": {"bad-input"}, "q5": {"model-raised"}}) == []
    assert {(i, told) for i, kind, told in done.egress if kind != "prediction"} == {
        ("q3", "bad-input"),
        ("q5", "model-raised"),
    }
    assert done.seconds < 10


def test_a_partial_join_answers_without_the_lost_branch():
    shape = SHAPES["partial"]
    done = run(scenario(shape, poison=lambda stage, request_id: "model" if stage == "b" else None), 3)
    assert problems(shape, done) == []
    assert {told["value"] for _, _, told in done.egress} == {
        ("d", (("c", ("c", ("a", request_id))),)) for request_id in done.accepted
    }
