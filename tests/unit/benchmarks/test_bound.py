"""The clairvoyant bound: instances worked out by hand, brute force, policies that must not beat it, the reference."""

import csv
from itertools import combinations, permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.pard import bound
from benchmarks.pard.applications import from_artifact
from benchmarks.pard.rivals import setting_of
from benchmarks.reference import TABLE, folder
from spillway.agents.sim.simulation import simulate
from spillway.lineage.errors import UsageError
from spillway.producers.load.traces import arrivals
from spillway.topology.load import parse

CHAIN = """
name: chain
slo: 0.1
stages:
  - {name: a, batching: {size: 2}, emulated: {alpha: 10ms, beta: 10ms}}
  - {name: b, batching: {size: 2}, after: [a], emulated: {alpha: 5ms, beta: 5ms}}
"""
FORK = """
name: fork
slo: 0.1
stages:
  - {name: a, batching: {size: 1}, emulated: {alpha: 0ms, beta: 10ms}}
  - {name: b, batching: {size: 1}, after: [a], emulated: {alpha: 0ms, beta: 30ms}}
  - {name: c, batching: {size: 1}, after: [a], emulated: {alpha: 0ms, beta: 5ms}}
  - {name: d, batching: {size: 1}, after: [b, c], emulated: {alpha: 0ms, beta: 20ms}}
"""


def of(text, arrivals, workers=None, **more):
    return bound.of(parse(text, "p.yaml"), arrivals, workers, **more)


def test_by_hand():
    # a: full batches of 2 in 30 ms, so 15 ms each; its window is 100 less 10 at b, 90 ms: six of ten at once fit.
    # b: 15 ms for 2, 7.5 each; its window is 100 less 20 at a, 80 ms: all ten fit.
    found = of(CHAIN, [0.0] * 10)
    assert found.drops == {"a": 4, "b": 0}
    assert found.least == 4
    assert found.rate == pytest.approx(0.4)


def test_more_workers_are_one_faster_server():
    assert of(CHAIN, [0.0] * 20, [2, 2]).drops["a"] == 8


def test_the_slowest_way_counts_where_every_branch_is_needed():
    # c: the way to it takes 10, the way on 20: 70 ms of 5 each. b: 70 ms of 30 each. d: 100 - 40 = 60 of 20 each.
    assert of(FORK, [0.0] * 20).drops == {"a": 15, "b": 18, "c": 6, "d": 17}


def test_hops_narrow_the_window():
    # Three hops of 10 ms leave 60 ms of the 90 at a.
    assert of(CHAIN, [0.0] * 10, hop=0.01).drops["a"] == 6


def test_too_small_an_slo_drops_all():
    assert of(CHAIN, [0.0, 1.0], slo=0.029).rate == 1.0


def test_a_stage_that_not_all_pass_is_left_out():
    lenient = FORK.replace("after: [b, c]", "after: [b, c], join: {mode: any}")
    found = of(lenient, [0.0] * 20)
    assert set(found.drops) == {"a", "d"}
    assert found.drops["a"] == 13  # the shortest way on: 5 + 20


def test_nothing_arrives():
    assert of(CHAIN, []).rate == 0.0


def test_unsorted_arrivals_are_refused():
    with pytest.raises(UsageError, match="sorted"):
        of(CHAIN, [1.0, 0.0])


@given(st.lists(st.integers(0, 8), min_size=1, max_size=6), st.integers(1, 3), st.integers(1, 7))
def test_one_server_keeps_as_many_as_any_order_could(times, service, window):
    arrivals = sorted(times)
    assert bound.overdue(np.array(arrivals, float), float(service), float(window)) == len(arrivals) - most_kept(
        arrivals, service, window
    )


def most_kept(arrivals, service, window):
    """The most requests that some set, in some order, ends in time."""
    for size in range(len(arrivals), 0, -1):
        for chosen in combinations(arrivals, size):
            for order in permutations(chosen):
                free = 0
                for arrival in order:
                    free = max(free, arrival) + service
                    if free > arrival + window:
                        break
                else:
                    return size
    return 0


@given(
    st.lists(st.floats(0, 0.4), min_size=1, max_size=60),
    st.sampled_from(["naive", "nexus", "clipper++", "pard", "spillway"]),
    st.sampled_from(["worker", "shared"]),
)
def test_no_policy_beats_it(times, policy, dispatch):
    pipeline = parse(CHAIN, "p.yaml")
    arrivals = sorted(times)
    result = simulate(pipeline, arrivals, workers=[2, 1], dispatch=dispatch, policy=setting_of(policy), period=0.05)
    assert len(arrivals) - result.good >= bound.of(pipeline, arrivals, [2, 1]).least


@pytest.mark.nightly
@pytest.mark.skipif(not (folder() / TABLE).exists(), reason="the reference lies outside the repository")
def test_it_is_the_references_bound():
    with (folder() / TABLE).open() as lines:
        rows = [row for row in csv.DictReader(lines) if row["policy"] == "pard"]
    for row in rows:
        pipeline = from_artifact(folder().parent / "apps" / f"{row['app']}.json")
        due = arrivals(Path(folder() / f"{row['trace']}.csv.gz"))
        found = bound.of(pipeline, due, [int(each) for each in row["workers"].split()])
        assert round(100 * found.rate, 3) == float(row["clairvoyant_drop_pct"]), row["app"]
