"""Batch limits that find themselves: their rules, by hand, and how they follow a model that changes."""

from __future__ import annotations

import random

import pytest

from agents.core.batching import Batcher
from agents.core.limits import Aimd, Quantile, limits
from agents.core.policies import make
from agents.core.policy import StageView
from agents.core.request import Request
from agents.sim.simulation import simulate
from lineage.errors import UsageError
from topology.load import parse

OBJECTIVE = 0.02


def test_a_limit_grows_by_a_tenth_and_at_least_one_until_the_first_batch_beyond():
    limit = Aimd(OBJECTIVE, 64)
    assert [limit.size, limit.learn(1, 0.01), limit.learn(2, 0.01), limit.learn(3, 0.01)] == [1, 2, 3, 4]
    sizes = [limit.learn(limit.size, 0.01) for _ in range(26)]
    assert sizes[5:10] == [10, 11, 12, 13, 14]
    assert sizes[-4:] == [50, 55, 61, 64]


def test_after_a_batch_beyond_it_grows_by_a_hundredth():
    limit = Aimd(OBJECTIVE, 100)
    while limit.size < 100:
        limit.learn(limit.size, 0.01)
    assert limit.learn(100, 0.03) == 90
    steps = [limit.learn(limit.size, 0.01) for _ in range(10)]
    assert steps == [90, 91, 92, 93, 94, 95, 96, 97, 98, 99]


def test_only_full_batches_raise_it_and_any_batch_beyond_lowers_it():
    limit = Aimd(OBJECTIVE, 64)
    for count in range(1, 10):
        limit.learn(count, 0.01)
    assert limit.size == 10
    assert limit.learn(9, 0.01) == 10
    assert limit.learn(3, 0.03) == 9


@pytest.mark.parametrize("kind", [Aimd, Quantile])
def test_a_limit_stays_between_one_and_what_the_model_takes(kind):
    limit = kind(OBJECTIVE, 8)
    assert max(limit.learn(limit.size, 0.001) for _ in range(300)) == 8
    assert min(limit.learn(limit.size, 0.1) for _ in range(300)) == 1


def follow(limit, slowness, seconds, chance):
    """Run full batches of 2 ms + .2 ms each times `slowness`; returns the share of them beyond the objective, late."""
    now, beyond, late = 0.0, 0, 0
    while now < seconds:
        took = slowness * (0.002 + 0.0002 * limit.size) * chance.lognormvariate(0.0, 0.05)
        now += took
        if now > seconds / 2:
            late, beyond = late + 1, beyond + (took > OBJECTIVE)
        limit.learn(limit.size, took)
    return beyond / late


@pytest.mark.parametrize("kind", [Aimd, Quantile])
def test_it_finds_the_size_of_a_model_that_turns_slower_and_faster(kind):
    limit, chance = kind(OBJECTIVE, 4096), random.Random(1)
    for slowness in (1.0, 3.0, 1 / 3):
        assert follow(limit, slowness, 10.0, chance) <= 0.1
        best = (OBJECTIVE / slowness - 0.002) / 0.0002
        assert 0.8 * best <= limit.size <= 1.1 * best


def test_an_adaptive_limit_needs_an_objective():
    assert limits("planned", None, 8) is None
    with pytest.raises(UsageError, match="batch limit aimd needs an objective in seconds"):
        limits("aimd", None, 8)


def test_each_worker_has_a_limit_of_its_own_and_what_waits_takes_the_room():
    made = Batcher(make("naive", StageView("s")), 64, 0.0, 2, lambda n: 0.01 * n, limits("aimd", OBJECTIVE, 64))
    for number in range(8):
        made.push(0.0, Request(str(number), 0, 0.0, 9.0, 0.0, (), {}))
    assert [(batch.worker, len(batch.requests)) for batch in made.starts] == [(0, 1), (1, 1)]
    made.complete(0.01, 0, 0.01)  # worker 0 may have two now
    assert [(batch.worker, len(batch.requests)) for batch in made.starts[2:]] == [(0, 2)]
    made.complete(0.01, 1, 0.05)  # and worker 1 still one
    assert [(batch.worker, len(batch.requests)) for batch in made.starts[3:]] == [(1, 1)]
    assert made.limit == 2


PIPELINE = """
name: p
slo: 400ms
stages:
  - {name: a, emulated: {alpha: 2ms, beta: 200us}, batching: {limit: aimd, objective: 20ms, max: 1000}}
"""


def test_the_simulator_drives_the_same_limits():
    result = simulate(parse(PIPELINE), [number / 6_000 for number in range(20_000)], policy="naive")
    mean = 20_000 / result.stages["a"].batches
    assert 60 <= mean <= 100  # 90 would be the largest within 20 ms


def test_objectives_are_half_of_even_shares_where_durations_are_unknown():
    text = """
name: p
slo: 600ms
sinks: all
stages:
  - {name: a, model: "m:M"}
  - {name: b, model: "m:M", after: a, batching: {delay: 60ms}}
  - {name: c, model: "m:M", after: b, batching: {limit: quantile}}
  - {name: d, model: "m:M", after: a, batching: {objective: 30ms, limit: aimd}}
"""
    stages = {stage.name: stage.batching for stage in parse(text).spec.stages}
    assert {name: each.limit for name, each in stages.items()} == {
        "a": "aimd",
        "b": "aimd",
        "c": "quantile",
        "d": "aimd",
    }
    assert stages["a"].objective == pytest.approx(0.09)  # (600 - 60) / 3 / 2
    assert stages["c"].objective == pytest.approx(0.09)
    assert stages["d"].objective == 0.03


def test_objectives_are_half_of_the_planned_shares_where_durations_are_known():
    text = """
name: p
slo: 400ms
stages:
  - {name: a, emulated: {alpha: 30ms, beta: 10ms}, batching: {limit: aimd}}
  - {name: b, emulated: {alpha: 100ms, beta: 20ms}, after: a}
"""
    a, b = parse(text).spec.stages
    assert a.batching.objective == pytest.approx(0.4 * 40 / 160 / 2)
    assert (b.batching.limit, b.batching.size) == ("planned", 2)
