"""Pipelines with autoregressive stages: by hand, against single iterations, and what is conserved."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.core.policies.fifo import Expired, Naive
from benchmarks.rag import batcher
from benchmarks.rag.conversation import Conversations, read_spec, recorded
from benchmarks.rag.engine import TokenEngine
from benchmarks.rag.generation import TokenProfile
from benchmarks.rag.pipeline import POLICIES, rag_plan, rag_queries, simulate_rag
from benchmarks.rag.plan import Batches, Generator, Needs, Queries, Threads, TokenPlan, TokenStage
from lineage.errors import UsageError

PLAIN = TokenProfile(alpha=1.0, beta=0.25, gamma=0.125)


def ints(*values):
    return np.array(values, np.int64)


def alone(due, prompt, output, profile=PLAIN, slo=1e6, policy=Naive, *, until_first=False):
    plan = TokenPlan((TokenStage("lm", Generator(profile, until_first=until_first)),), slo)
    queries = Queries(np.array(due, float), {"lm": Needs(ints(*prompt), ints(*output))})
    return TokenEngine(plan, queries, lambda view, stage: policy(view)).run()


def test_an_arrival_amid_iterations_that_are_all_alike_joins_at_the_next_end_of_one():
    result = alone([0.0, 3.25], [4, 8], [5, 1])
    # a: 1.75, then 1.25 each: 3.0, 4.25 (b has come at 3.25), with b: 1.5 + 1 = 2.5 to 6.75, and one more: 8.0
    assert result.finished.tolist() == [8.0, 6.75]
    assert result.stages["lm"].busy == 8.0


def test_an_arrival_at_the_end_of_an_iteration_joins_at_once():
    assert alone([0.0, 3.0], [4, 8], [3, 1]).finished.tolist() == [5.5, 5.5]


def test_the_first_token_is_the_outcome_where_the_stage_says_so_and_decoding_goes_on():
    result = alone([0.0], [4], [3], until_first=True)
    assert result.finished.tolist() == [1.75]
    assert result.charged.tolist() == [4.25]


def test_branches_run_side_by_side_and_meet_again():
    plan = TokenPlan(
        (
            TokenStage("a", Generator(PLAIN)),
            TokenStage("b", Batches(2, 2.0, 0.5), ("a",)),
            TokenStage("c", Threads(1, 4.0), ("a",)),
            TokenStage("d", Generator(PLAIN), ("b", "c")),
        ),
        100.0,
    )
    needs = {
        "a": Needs(ints(4, 4), ints(1, 1)),
        "c": Needs(seconds=np.array([4.0, 1.0])),
        "d": Needs(ints(4, 4), ints(1, 2)),
    }
    result = TokenEngine(plan, Queries(np.array([0.0, 0.0]), needs), lambda view, stage: Naive(view)).run()
    # a: 1.75 each, one after the other, as the first finds it idle. b: to 4.25, and the other, which waits .75 from
    # 3.5, to 6.75. c: to 5.75, and the other, which queues 2.25, to 6.75. d: the first from 5.75 to 7.5; the other
    # joins then, to 9.25, and needs one more token.
    assert result.finished.tolist() == [7.5, 10.5]
    assert result.charged.tolist() == [1.75 + 2.5 + 1.75, 1.75 + 2.5 + 1.75 + 1.25]
    assert (result.stages["c"].queued, result.stages["b"].waited) == (2.25, 0.75)


def test_what_is_dropped_at_one_branch_is_lost_and_what_the_other_takes_is_wasted():
    plan = TokenPlan(
        (
            TokenStage("a", Batches(1, 1.0, 0.0)),
            TokenStage("b", Batches(8, 3.0, 0.0), ("a",)),
            TokenStage("c", Threads(1, 4.0), ("a",)),
            TokenStage("d", Batches(8, 1.0, 0.0), ("b", "c")),
        ),
        6.5,
    )
    needs = {"c": Needs(seconds=np.array([5.0, 1.0]))}
    result = TokenEngine(plan, Queries(np.array([0.0, 0.1]), needs), lambda view, stage: Expired(view)).run()
    # c serves the first from 1 to 6 and the other to 7, past its 6.6; d ends the first, late, at 7.
    assert (result.lost, result.finished.tolist()[0]) == (["", "d"], 7.0)
    late = TokenEngine(
        plan,
        Queries(np.array([0.0, 0.1]), {"c": Needs(seconds=np.array([5.7, 1.0]))}),
        lambda view, stage: Expired(view),
    ).run()
    assert late.lost == ["d", "c"]
    assert late.wasted == 1.0
    assert late.drop_rate == 1.0


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


def test_a_plan_and_its_queries_are_checked():
    with pytest.raises(UsageError, match="after its predecessors"):
        TokenPlan((TokenStage("a", Threads(1, 1.0)), TokenStage("b", Threads(1, 1.0), ("c",))), 1.0)
    with pytest.raises(UsageError, match="ends in one stage"):
        TokenPlan(
            (
                TokenStage("a", Threads(1, 1.0)),
                TokenStage("b", Threads(1, 1.0), ("a",)),
                TokenStage("c", Threads(1, 1.0), ("a",)),
            ),
            1.0,
        )
    with pytest.raises(UsageError, match="give every query a prompt"):
        TokenEngine(rag_plan(), Queries(np.array([0.0]), {}), lambda view, stage: Naive(view))
    with pytest.raises(UsageError, match="longer than the 6 it holds"):
        alone([0.0], [4], [3], TokenProfile(1, 1, 1, kv=6))


def test_generated_conversations_are_like_the_recorded_ones_they_summarise():
    drawn = read_spec().draw(20_000, 5.0, seed=3)
    assert 20_000 / drawn.due[-1] == pytest.approx(5.0, rel=0.1)
    assert drawn.prompt.mean() == pytest.approx(1155, rel=0.05)
    assert drawn.output.mean() == pytest.approx(211, rel=0.05)
    near = (drawn.prompt > 1020) & (drawn.prompt < 1130)
    assert np.median(drawn.output[near]) == pytest.approx(404, abs=15)
    again = read_spec().draw(20_000, 5.0, seed=3)
    assert (again.due == drawn.due).all()


def test_recorded_conversations_are_scaled_to_the_rate(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("t,context_tokens,generated_tokens\n0,374,44\n4,396,109\n6,0,55\n")
    taken = recorded(file, 3, rate=2.0, seed=0)
    assert taken.due.tolist() == pytest.approx([0, 2 / 3, 1.0])
    assert taken.prompt.tolist() == [374, 396, 1]
    with pytest.raises(UsageError, match="has 3 rows"):
        recorded(file, 4, 2.0, 0)
    file.write_text("t,tokens\n0,1\n")
    with pytest.raises(UsageError, match="give it the columns"):
        recorded(file, 1, 2.0, 0)


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


def test_knowing_true_lengths_wastes_less_than_waiting_for_the_deadline():
    conversations = read_spec().draw(1500, 6.0, seed=2)
    wasted = {policy: simulate_rag(conversations, policy, seed=2).wasted for policy in ("reactive", "oracle")}
    assert wasted["oracle"] < 0.6 * wasted["reactive"]


def test_a_policy_that_is_none_is_named():
    with pytest.raises(UsageError, match="there is no policy 'best'"):
        simulate_rag(Conversations(np.array([0.0]), ints(4), ints(3)), "best", 0)
    assert set(rag_queries(Conversations(np.array([0.0]), ints(4), ints(3)), 0).needs) == {
        "rewrite", "search", "generate"
    }  # fmt: skip
