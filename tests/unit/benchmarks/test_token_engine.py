"""Pipelines with autoregressive stages: by hand, against single iterations, and what is conserved."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.core.policies.fifo import Expired, Naive
from benchmarks.rag import batcher
from benchmarks.rag.conversation import read_spec
from benchmarks.rag.engine import TokenEngine
from benchmarks.rag.generation import TokenProfile
from benchmarks.rag.pipeline import POLICIES, simulate_rag
from benchmarks.rag.plan import Generator, Needs, Queries, TokenPlan, TokenStage

PLAIN = TokenProfile(alpha=1.0, beta=0.25, gamma=0.125)


def ints(*values):
    return np.array(values, np.int64)


def alone(due, prompt, output, profile=PLAIN, slo=1e6, policy=Naive, *, until_first=False):
    plan = TokenPlan((TokenStage("lm", Generator(profile, until_first=until_first)),), slo)
    queries = Queries(np.array(due, float), {"lm": Needs(ints(*prompt), ints(*output))})
    return TokenEngine(plan, queries, lambda view, stage: policy(view)).run()


def single_stepped(monkeypatch, run):
    """Run with iterations that are never taken many at once."""
    with monkeypatch.context() as patch:
        patch.setattr(batcher.ContinuousBatcher, "_alike", lambda self: 1)
        return run()


visits = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30), st.integers(1, 15)), min_size=1, max_size=15)
limits = st.tuples(st.sampled_from([4, 1e9]), st.sampled_from([2, 1e9]), st.sampled_from([48, 1e9]))


@given(visits, limits, st.sampled_from([5.0, 30.0, 1e6]))
def test_many_iterations_at_once_give_what_single_ones_give(visits, limits, slo):
    chunk, most, kv = limits
    profile = TokenProfile(1.0, 0.25, 0.125, chunk=chunk, most=most, kv=kv)
    due, prompt, output = zip(*sorted(visits), strict=True)

    def run():
        return alone([at / 4 for at in due], prompt, output, profile, slo, Expired)

    many = run()
    with pytest.MonkeyPatch.context() as patch:
        single = single_stepped(patch, run)
    np.testing.assert_allclose(many.finished, single.finished)
    np.testing.assert_allclose(many.charged, single.charged)
    assert many.lost == single.lost
    assert many.charged.sum() == pytest.approx(many.stages["lm"].busy)
    assert ((many.finished >= 0) ^ np.array([bool(lost) for lost in many.lost])).all()


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("soonest = self._ends[0][0] - self._tick", "soonest = self._ends[-1][0] - self._tick + 1"),
        ("int(room) // self._decoding", "int(room)"),
        ("self._used += self._decoding * repeats", "self._used += repeats"),
        ("request.mark = self._account", "request.mark = 0.0"),
        ("request.left = need", "request.left = request.prompt"),
        ("request.held += self._tick - request.since", "request.held = 0"),
    ],
)
def test_these_tests_see_a_broken_batcher(right, wrong, monkeypatch):
    source = inspect.getsource(batcher)
    assert source.count(right) == 1
    broken = {"__name__": "benchmarks.rag.batcher"}
    exec(compile(source.replace(right, wrong), "broken", "exec"), broken)
    profile = TokenProfile(1.0, 0.25, 0.125, kv=32)
    due = [0.0, 0.5, 3.0, 3.25, 9.0, 9.0]
    prompt, output = [4, 9, 3, 6, 4, 8], [9, 4, 12, 10, 9, 1]
    want = single_stepped(monkeypatch, lambda: alone(due, prompt, output, profile))
    monkeypatch.setattr("benchmarks.rag.stations.ContinuousBatcher", broken["ContinuousBatcher"])
    try:
        got = alone(due, prompt, output, profile)
    except (ValueError, IndexError, KeyError, ZeroDivisionError):
        return
    same = np.allclose(got.finished, want.finished) and np.allclose(got.charged, want.charged)
    assert not same or got.stages["lm"].busy != pytest.approx(got.charged.sum())


def test_every_query_of_the_rag_pipeline_ends_once_under_every_policy():
    conversations = read_spec().draw(300, 8.0, seed=1)
    for policy in POLICIES:
        result = simulate_rag(conversations, policy, seed=1)
        dropped = np.array([bool(stage) for stage in result.lost])
        assert (np.isnan(result.finished) == dropped).all()
        assert (result.finished[~dropped] > result.due[~dropped]).all()
        busy = sum(result.stages[name].busy for name in ("rewrite", "retrieve", "generate"))
        assert result.charged.sum() == pytest.approx(busy)
        assert not (policy == "naive" and dropped.any())
        again = simulate_rag(conversations, policy, seed=1)
        np.testing.assert_array_equal(again.finished, result.finished)
