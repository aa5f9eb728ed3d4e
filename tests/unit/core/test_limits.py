"""Batch limits that find themselves: their rules, by hand, and how they follow a model that changes."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.agents.core.batching import Batcher
from spillway.agents.core.limits import Aimd, Quantile, limits
from spillway.agents.core.policies import make
from spillway.agents.core.policy import StageView
from spillway.agents.sim.simulation import simulate
from spillway.lineage.errors import UsageError
from spillway.topology.load import parse
from tests.unit.core.builders import request

OBJECTIVE = 0.02


def test_a_limit_grows_by_a_tenth_and_at_least_one():
    limit = Aimd(OBJECTIVE, 64)
    assert [limit.size, limit.learn(1, 0.01), limit.learn(2, 0.01), limit.learn(3, 0.01)] == [1, 2, 3, 4]
    sizes = [limit.learn(limit.size, 0.01) for _ in range(26)]
    assert sizes[5:10] == [10, 11, 12, 13, 14]
    assert sizes[-4:] == [50, 55, 61, 64]


def grown(size, most=1_000_000):
    limit = Aimd(OBJECTIVE, most)
    while limit.size < size:
        limit.learn(limit.size, 0.01)
    return limit


def test_growth_is_slow_from_nine_tenths_of_a_limit_that_was_beyond_twice():
    limit = grown(1000, 1000)
    assert limit.learn(1000, 0.03) == 900
    assert [limit.learn(limit.size, 0.01) for _ in range(2)] == [990, 1000]  # one alone marks nothing
    for _ in range(3):
        limit.learn(limit.size, 0.03)
    assert limit.size == 729
    assert [limit.learn(limit.size, 0.01) for _ in range(4)] == [801, 810, 810, 811]  # the marked one: 900
    for _ in range(200):
        limit.learn(1, 0.01)
    assert [limit.learn(limit.size, 0.01) for _ in range(2)] == [892, 981]  # nothing is marked any more


def regrown(limit, size, most=10_000):
    """Return the full batches within the objective that it takes the limit to reach `size`."""
    for count in range(most):
        if limit.size >= size:
            return count
        limit.learn(limit.size, 0.01)
    return most


@given(before=st.integers(0, 100), seconds=st.floats(0.021, 100), most=st.integers(2, 4096), full=st.booleans())
def test_a_lone_slow_batch_costs_a_limit_a_few_steps(before, seconds, most, full):
    slow, other = Aimd(OBJECTIVE, most), Aimd(OBJECTIVE, most)
    for _ in range(before):
        slow.learn(slow.size, 0.01)
        other.learn(other.size, 0.01)
    was = slow.size
    slow.learn(was if full else 1, seconds)
    assert slow.size >= int(0.9 * was)
    assert regrown(slow, was) <= 3
    assert regrown(other, most) <= 90
    assert regrown(slow, most) <= 95
    assert not slow.unmet


@pytest.mark.parametrize("kind", [Aimd, Quantile])
@given(before=st.integers(0, 300), slow=st.lists(st.floats(0.021, 1), min_size=1, max_size=20))
def test_slow_batches_that_are_over_leave_nothing_behind(kind, before, slow):
    limit = kind(OBJECTIVE, 1000)
    for _ in range(before):
        limit.learn(limit.size, 0.01)
    for seconds in slow:
        limit.learn(limit.size, seconds)
    assert regrown(limit, 1000) <= 200 + 90


@pytest.mark.parametrize(("kind", "most_beyond"), [(Aimd, 0.08), (Quantile, 0.2)])
@given(base=st.floats(0, 0.015), best=st.integers(10, 2000), noise=st.floats(0.005, 0.08), seed=st.integers(0, 1000))
def test_a_limit_settles_where_batches_are_within_the_objective(kind, most_beyond, base, best, noise, seed):
    limit, chance = kind(OBJECTIVE, 4096), random.Random(seed)
    sizes, beyond = [], 0
    for number in range(800):
        took = (base + (OBJECTIVE - base) * limit.size / best) * chance.lognormvariate(0.0, noise)
        if number >= 400:
            sizes.append(limit.size)
            beyond += took > OBJECTIVE
        limit.learn(limit.size, took)
    within = (OBJECTIVE * math.exp(-2.5 * noise) - base) / (OBJECTIVE - base) * best  # of nearly all batches
    assert 0.7 * within - 1 <= statistics.median(sizes) <= best + 1
    assert beyond <= most_beyond * 400


def pausing(limit, share, chance, batches=1600):
    """Run batches of 2 ms + .2 ms each, a share of which pauses for 300 ms; return the limits of the later half."""
    sizes = []
    for _ in range(batches):
        sizes.append(limit.size)
        limit.learn(limit.size, 0.002 + 0.0002 * limit.size + 0.3 * (chance.random() < share))
    return sizes[batches // 2 :]


@settings(max_examples=settings.default.max_examples // 2)
@given(share=st.floats(0.03, 0.4), seed=st.integers(0, 1000))
def test_a_quantile_that_no_limit_keeps_takes_what_is_hardly_worse_than_one_query(share, seed):
    limit = Quantile(OBJECTIVE, 4096)
    sizes = pausing(limit, share, random.Random(seed))
    assert limit.unmet or share < 0.15
    assert 70 <= statistics.median(sizes) <= 100  # 90 would be the largest of those that do not pause


def test_where_any_batch_is_beyond_the_largest_is_as_good_as_one():
    limit = Quantile(OBJECTIVE, 4096)
    sizes = [limit.learn(limit.size, 0.03) for _ in range(400)]
    assert (set(sizes[250:]), limit.unmet) == ({1, 4096}, True)  # batches of one show whether it is still so
    for _ in range(100 * 16 + 1):
        limit.learn(limit.size, 0.01)
    assert (limit.size, limit.unmet) == (4096, False)


@pytest.mark.parametrize(("each", "unmet"), [(0.03, True), (0.01, False)])
def test_a_limit_says_where_one_query_alone_is_beyond(each, unmet):
    made = Batcher(make("naive", StageView("s")), 64, 0.0, 1, None, limits("aimd", OBJECTIVE, 64))
    assert not made.unmet
    for number in range(50):
        made.push(0.1 * number, request(str(number)))
        made.complete(0.1 * number + each, 0, each)
    assert made.unmet == unmet


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


def work(took, limit, seconds=30.0):
    """Run full batches; return the share beyond the objective, and queries a second, of the last 7 tenths."""
    now, late, beyond, queries, spent = 0.0, 0, 0, 0, 0.0
    while now < seconds:
        size = limit if isinstance(limit, int) else limit.size
        each = took(size)
        if now >= 0.3 * seconds:
            late, beyond, queries, spent = late + 1, beyond + (each > OBJECTIVE), queries + size, spent + each
        if not isinstance(limit, int):
            limit.learn(size, each)
        now += each
    return beyond / late, queries / spent


@pytest.mark.parametrize(("kind", "bound"), [(Quantile, 0.02), (Aimd, 0.05)])
@pytest.mark.parametrize(
    ("base", "each", "pauses", "most", "best"),
    [(0.015, 0.0005, 0.0, 64, 8), (0.010, 5e-6, 0.03, 4096, 1600), (0.002, 0.0001, 0.0, 4096, 170)],
)
def test_a_limit_keeps_its_bound_above_one_query_and_most_of_the_best_fixed_rate(
    kind, bound, base, each, pauses, most, best
):
    chance = random.Random(2)

    def took(count):
        return (base + each * count) * chance.lognormvariate(0.0, 0.02) + 0.015 * (chance.random() < pauses)

    one, _ = work(took, 1)
    share, rate = work(took, kind(OBJECTIVE, most))
    assert share <= one + bound + 0.01  # over so few batches
    assert rate >= 0.85 * work(took, best)[1]


@pytest.mark.parametrize("kind", [Aimd, Quantile])
def test_it_finds_the_size_of_a_model_that_turns_slower_and_faster(kind):
    limit, chance = kind(OBJECTIVE, 4096), random.Random(1)
    for slowness in (1.0, 3.0, 1 / 3):

        def took(count, slowness=slowness):
            return slowness * (0.002 + 0.0002 * count) * chance.lognormvariate(0.0, 0.05)

        assert work(took, limit, 10.0)[0] <= 0.1
        best = (OBJECTIVE / slowness - 0.002) / 0.0002
        assert 0.8 * best <= limit.size <= 1.1 * best


def test_an_adaptive_limit_needs_an_objective():
    assert limits("planned", None, 8) is None
    with pytest.raises(UsageError, match="batch limit aimd needs an objective in seconds"):
        limits("aimd", None, 8)


def test_each_worker_has_a_limit_of_its_own_and_what_waits_takes_the_room():
    made = Batcher(make("naive", StageView("s")), 64, 0.0, 2, lambda n: 0.01 * n, limits("aimd", OBJECTIVE, 64))
    for number in range(8):
        made.push(0.0, request(str(number)))
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
