"""The simulator against hand-worked cases and against an independent reckoning of the same model."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.sim.simulation import simulate
from spillway.lineage.errors import UsageError
from spillway.producers.report import DROPPED, PREDICTION
from spillway.topology.load import parse

from .pipelines import pipeline
from .reckoning import Stage, queue_for_all, queue_per_worker, reckon

CHAIN = [("a", 20.0, 7.0, 3, ()), ("b", 11.0, 5.0, 4, ("a",)), ("c", 9.0, 4.0, 2, ("b",))]
DIAMOND = [
    ("a", 20.0, 7.0, 3, ()),
    ("b", 15.0, 6.0, 4, ("a",)),
    ("c", 12.0, 5.0, 2, ("a",)),
    ("d", 8.0, 4.0, 5, ("b", "c")),
]


def ms(result):
    return [None if k == DROPPED else round(1000 * f, 6) for f, k in zip(result.finished, result.kind, strict=True)]


# Worked out by hand -----------------------------------------------------------------------------------------------


def test_one_stage_one_worker():
    small = pipeline([("a", 10.0, 2.0, 2, ())])
    # 0: runs 0-12. 1, 2: form, run 12-26. 3: waits, enters at 12, runs 26-38. 100: idle, runs 100-112.
    result = simulate(small, [0.0, 0.001, 0.002, 0.003, 0.1], workers=[1])
    assert ms(result) == [12.0, 26.0, 26.0, 38.0, 112.0]
    totals = result.stages["a"]
    assert (totals.received, totals.batches, totals.queries, totals.dropped) == (5, 4, 5, 0)
    assert totals.queued == pytest.approx((0 + 0 + 0 + 0.009 + 0) / 5)
    assert totals.waited == pytest.approx((0 + 0.011 + 0.010 + 0.014 + 0) / 5)
    assert totals.busy == pytest.approx(0.012 + 0.014 + 0.012 + 0.012)
    assert result.spent == pytest.approx([0.012, 0.007, 0.007, 0.012, 0.012])


def test_hops_take_their_time():
    small = pipeline([("a", 10.0, 0.0, 1, ()), ("b", 5.0, 0.0, 1, ("a",))])
    result = simulate(small, [0.0, 0.100], hop_delay=0.002)
    assert ms(result) == [21.0, 121.0]  # to a, to b, and back
    assert result.stages["a"].queued == 0.0


# The same model, reckoned in another way ---------------------------------------------------------------------------


def same(described, workers, gaps, dispatch, slo=0.2, policy="naive"):
    sent = np.cumsum(gaps)
    result = simulate(pipeline(described), sent, workers=workers, dispatch=dispatch, slo=slo, policy=policy)
    stages = [
        Stage(name, batch, count, alpha / 1000, beta / 1000, before)
        for (name, alpha, beta, batch, before), count in zip(described, workers, strict=True)
    ]
    times = sent.tolist()
    expected, sizes = reckon(
        stages,
        times,
        queue_per_worker if dispatch == "worker" else queue_for_all,
        (lambda now, request: times[request] + slo < now) if policy == "expired" else lambda now, request: False,
    )
    found = [f if k == PREDICTION else None for f, k in zip(result.finished, result.kind, strict=True)]
    assert found == expected
    for name, counts in sizes.items():
        totals = result.stages[name]
        assert (totals.batches, totals.queries) == (len(counts), sum(counts))


@pytest.mark.parametrize("described", [CHAIN, DIAMOND])
@pytest.mark.parametrize(("dispatch", "policy"), [("worker", "naive"), ("worker", "expired"), ("shared", "naive")])
def test_the_reckoning_agrees_on_random_loads(described, dispatch, policy):
    rng = np.random.default_rng(5)
    for _ in range(12):
        stages = [
            (name, alpha + rng.random(), beta + rng.random(), batch, pre) for name, alpha, beta, batch, pre in described
        ]
        workers = rng.integers(1, 5, len(stages)).tolist()
        gaps = rng.exponential(rng.choice([0.003, 0.01, 0.03]), 300)
        same(stages, workers, gaps, dispatch, policy=policy)


@given(
    st.lists(st.floats(0.0001, 0.05, allow_nan=False), min_size=1, max_size=40),
    st.lists(st.integers(1, 3), min_size=4, max_size=4),
    st.sampled_from([("worker", "naive"), ("worker", "expired"), ("shared", "naive")]),
    st.floats(0.01, 0.3),
    st.integers(1, 4),
)
def test_the_reckoning_agrees_on_any_small_load(gaps, workers, how, slo, batch):
    # Durations without a common measure, so that no two events fall together.
    stages = [
        ("a", 20.0 * 2**0.5, 7.0 * 3**0.5, batch, ()),
        ("b", 15.0 * 5**0.5, 6.0 * 7**0.5, 4, ("a",)),
        ("c", 12.0 * 11**0.5, 5.0 * 13**0.5, 2, ("a",)),
        ("d", 8.0 * 17**0.5, 4.0 * 19**0.5, batch, ("b", "c")),
    ]
    same(stages, workers, gaps, how[0], slo, how[1])


# Choices of dispatch and seed --------------------------------------------------------------------------------------


def test_partitions_over_one_replica_are_one_shared_queue():
    small = pipeline(DIAMOND)
    sent = np.cumsum(np.random.default_rng(1).exponential(0.01, 500))
    shared = simulate(small, sent, workers=[2, 2, 2, 2], dispatch="shared")
    partition = simulate(small, sent, workers=[2, 2, 2, 2], dispatch="partition")
    assert (shared.finished == partition.finished).all()


def test_every_request_is_charged_what_its_batches_took():
    sent = np.cumsum(np.random.default_rng(1).exponential(0.008, 500))
    result = simulate(pipeline(DIAMOND, slo_ms=150.0), sent, workers=[2, 2, 2, 2], policy="expired")
    assert 0 < (result.kind == DROPPED).sum() < 500
    assert result.spent.sum() == pytest.approx(sum(totals.busy for totals in result.stages.values()))
    assert ((result.kind == DROPPED) | (result.kind == PREDICTION)).all()


def test_the_period_is_the_policys_unless_told():
    made, sent = pipeline(CHAIN), np.cumsum(np.random.default_rng(2).exponential(0.004, 400))
    assert [simulate(made, sent, policy=name).period for name in ("pard", "spillway")] == [1.0, 0.1]
    assert simulate(made, sent, policy="spillway", period=0.5).period == 0.5
    by_policy, told = (simulate(made, sent, policy="spillway", **given) for given in ({}, {"period": 0.1}))
    assert (by_policy.finished == told.finished).all()
    slower = simulate(made, sent, policy="spillway", period=1.0)
    assert (by_policy.finished != slower.finished).any()


def test_progress_hears_of_all_arrivals():
    heard = []
    simulate(pipeline(CHAIN), np.arange(100) / 10, progress=heard.append)
    assert heard[-1] == 100


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"workers": [1, 2]}, "2 numbers of workers for 3 stages; give one each for a, b, c"),
        ({"workers": [1, 0, 1]}, "stage b: 0 workers"),
        ({"policy": "fastest"}, "no policy 'fastest'"),
        ({"choices": {"x": {}}}, "no stage 'x'"),
        ({"choices": {"a": {"b": 1.0}}}, "chooses no successors"),
        ({"period": 0.0}, "period"),
    ],
)
def test_bad_arguments_say_what_to_do(arguments, words):
    with pytest.raises(UsageError, match=words):
        simulate(pipeline(CHAIN), [0.0], **arguments)


@pytest.mark.parametrize("arrivals", [[], [1.0, 0.5], [float("nan")], [-1.0]])
def test_bad_arrivals_are_refused(arrivals):
    with pytest.raises(UsageError, match="arrivals"):
        simulate(pipeline(CHAIN), arrivals)


# Stages with a state ------------------------------------------------------------------------------------------------

KEPT = """
name: kept
slo: 1s
partitions: 2
stages:
  - {name: a, model: "m:M", state: {kind: keyed, shards: 2}, batching: {max: 1}}
"""


def test_each_shard_of_a_state_has_a_queue_of_its_own():
    # All four are of one partition, so of one shard; the other one is idle.
    told = {"partitions": [1, 1, 1, 1], "policy": "naive", "durations": {"a": lambda _count: 0.01}}
    result = simulate(parse(KEPT), [0.0, 0.0, 0.0, 0.0], **told)
    assert ms(result) == [10.0, 20.0, 30.0, 40.0]


def test_a_shard_has_one_worker():
    with pytest.raises(UsageError, match="stage a: 3 workers, but it keeps a state, and has one for each"):
        simulate(parse(KEPT), [0.0], workers=[3])
