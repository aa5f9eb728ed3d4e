"""Choices in the simulator: drawn beforehand, and foretold to policies that ask."""

import numpy as np
import pytest

from spillway.agents.sim.choices import Crossroads, chooser
from spillway.agents.sim.observe import Observer
from spillway.agents.sim.simulation import simulate
from spillway.lineage.errors import UsageError
from spillway.producers.report import DROPPED, PREDICTION
from spillway.topology.load import parse

from .pipelines import pipeline
from .test_simulation import CHAIN, DIAMOND

FORK = """
name: fork
slo: 200ms
stages:
  - {name: a, emulated: {alpha: 10ms}, batching: {size: 1}, choose: "m:f"}
  - {name: slow, after: a, emulated: {alpha: 300ms}, batching: {size: 1}, workers: {count: 50}}
  - {name: fast, after: a, emulated: {alpha: 10ms}, batching: {size: 1}}
  - {name: end, after: [slow, fast], emulated: {alpha: 10ms}, batching: {size: 1}}
"""
PIPELINE = parse(FORK)
EVEN = {"slow": 0.5, "fast": 0.5}
SENT = np.arange(400) * 0.05
PROBES = np.arange(400) % 20 == 0  # the first of each second, which is let in where all would be dropped


PATIENT = np.where(np.arange(400) < 60, 1.0, 0.2)  # the first can go any way, and are learned from


def kinds(policy: str, choices=EVEN, budgets=None):
    result = simulate(PIPELINE, SENT, policy=policy, choices={"a": choices}, seed=3, budgets=budgets)
    return result.kind, result.stages


def test_the_same_requests_go_the_same_ways_whatever_is_dropped():
    roads = Crossroads({"a": chooser(PIPELINE.spec.stage("a"), ("slow", "fast"), EVEN)}, 400, 3)
    ways = [roads.choose("a", index) for index in range(400)]
    _, stages = kinds("naive")
    assert stages["slow"].received == ways.count(("slow",))
    found, _ = kinds("pard:paths=oracle")
    # The oracle keeps exactly those that go the fast way: the others cannot be in time.
    assert [kind == PREDICTION for kind in found] == [way == ("fast",) for way in ways]


def test_all_open_paths_drop_what_only_the_slow_one_is_too_slow_for():
    found, _ = kinds("pard:paths=max")
    assert (found[~PROBES] == DROPPED).all()
    assert (kinds("pard")[0] == found).all()  # max is the default


def test_what_most_chose_foretells_the_way():
    later = np.arange(400) >= 60
    slow, stages = kinds("pard:paths=predicted", {"slow": 0.9, "fast": 0.1}, PATIENT)
    assert (slow[later] == PREDICTION).mean() < 0.1
    assert stages["slow"].received < 100
    fast, _ = kinds("pard:paths=predicted", {"slow": 0.1, "fast": 0.9}, PATIENT)
    assert (fast[later] == PREDICTION).mean() > 0.6


def test_a_quantile_that_covers_all_choices_reckons_with_all():
    found, _ = kinds("pard:paths=predicted,quantile=.99", budgets=PATIENT)
    assert (found[~PROBES & (np.arange(400) >= 60)] == DROPPED).all()


@pytest.mark.parametrize(
    ("choices", "text"),
    [
        ({"slow": 0.5, "fast": 0.4}, "the probabilities of its choices must be at least 0 and add up to 1"),
        ({"slow": 2, "fast": -1}, "at least 0"),
        ({"none": 1.0}, "stage a cannot choose 'none'; its successors: slow, fast"),
    ],
)
def test_what_cannot_be_drawn(choices, text):
    with pytest.raises(UsageError, match=text):
        kinds("naive", choices)


# Requests with a budget, a partition and a hop delay of their own.

SPEC = """
name: small
slo: 1
partitions: 4
stages:
  - {name: a, emulated: {alpha: 100ms, beta: 0}, batching: {size: 1}, workers: {fronts: 2}}
  - {name: b, after: a, emulated: {alpha: 100ms, beta: 0}, batching: {size: 1}, workers: {fronts: 2}}
"""


def run(arrivals, **options):
    return simulate(parse(SPEC), arrivals, policy="expired", **options)


def test_each_is_judged_by_its_own_deadline():
    # All at once, one after the other: the third would enter a batch at .1 s.
    found = run([0.0] * 3, partitions=[0, 0, 0], budgets=[1.0, 1.0, 0.05])
    assert found.kind.tolist() == [PREDICTION, PREDICTION, DROPPED]


def test_each_goes_to_its_own_partition():
    apart = run([0.0, 0.0], partitions=[0, 1])
    together = run([0.0, 0.0], partitions=[0, 2])
    assert apart.finished.tolist() == pytest.approx([0.2, 0.2])
    assert together.finished.tolist() == pytest.approx([0.2, 0.3])


def test_each_takes_its_own_time_from_hop_to_hop():
    found = run([0.0, 0.0], partitions=[0, 1], hops=[0.0, 0.01])
    assert found.finished.tolist() == pytest.approx([0.2, 0.23])


@pytest.mark.parametrize(
    "wrong",
    [
        {"budgets": [1.0]},
        {"budgets": [1.0, 0.0]},
        {"partitions": [0]},
        {"partitions": [0, 4]},
        {"hops": [0.0]},
        {"hops": [0.0, -1.0]},
    ],
)
def test_what_does_not_fit_is_refused(wrong):
    with pytest.raises(UsageError, match="for 2 arrivals; give one each"):
        run([0.0, 0.0], **wrong)


# The observer sees everything once, and changes nothing.

ARRIVALS = np.cumsum(np.random.default_rng(1).gamma(0.4, 1 / 0.4 / 260.0, 4000))


def observed(stages, **options):
    observer = Observer(**options)
    small = pipeline(stages, slo_ms=150.0)
    workers = [2] * len(stages)
    result = simulate(small, ARRIVALS, workers=workers, dispatch="worker", policy="expired", observer=observer)
    plain = simulate(small, ARRIVALS, workers=workers, dispatch="worker", policy="expired")
    assert (plain.finished == result.finished).all()
    return result, observer


def test_drops_per_stage_add_up_to_the_drops():
    result, observer = observed(CHAIN)
    drops = [index for log in observer.stages.values() for index in log.drops]
    assert len(drops) > 100
    assert sorted(drops) == np.flatnonzero(result.kind == DROPPED).tolist()
    for name, log in observer.stages.items():
        assert len(log.drops) == result.stages[name].dropped
        assert (np.array(log.dropped) >= np.array(log.drop_arrived)).all()


def test_a_request_that_two_branches_drop_is_dropped_once():
    result, observer = observed(DIAMOND)
    drops = [index for log in observer.stages.values() for index in log.drops]
    assert set(drops) == set(np.flatnonzero(result.kind == DROPPED).tolist())
    assert len(drops) > len(set(drops))


def test_visits_tell_each_request_s_way():
    result, observer = observed(CHAIN)
    done = result.kind == PREDICTION
    before = dict(enumerate(ARRIVALS))
    for name, log in observer.stages.items():
        totals = result.stages[name]
        assert len(log.visits) == totals.queries
        arrived, entered, started, ended = (
            np.array(times) for times in (log.arrived, log.entered, log.started, log.ended)
        )
        assert (arrived <= entered).all()
        assert (entered <= started).all()
        assert (entered - arrived).mean() == pytest.approx(totals.queued)
        assert (started - entered).mean() == pytest.approx(totals.waited)
        assert sum(1 / size for size in log.sizes) == pytest.approx(totals.batches)
        assert arrived.tolist() == [before[index] for index in log.visits]
        before = dict(zip(log.visits, ended.tolist(), strict=True))
    assert {index: float(result.finished[index]) for index in np.flatnonzero(done)} == before


def test_a_sample_is_the_same_requests_everywhere():
    _, whole = observed(CHAIN)
    _, sample = observed(CHAIN, every=7)
    for name, log in sample.stages.items():
        assert list(log.visits) == [index for index in whole.stages[name].visits if index % 7 == 0]
        assert list(log.drops) == list(whole.stages[name].drops)
