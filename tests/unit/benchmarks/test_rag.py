"""`python -m benchmarks rag`: schedules by hand, against single iterations, what is conserved, and its figures."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.rag import batcher, command
from benchmarks.rag.conversation import read_spec
from benchmarks.rag.engine import TokenEngine
from benchmarks.rag.estimates import Recent
from benchmarks.rag.generation import Generation, TokenProfile
from benchmarks.rag.pipeline import POLICIES, simulate_rag
from benchmarks.rag.plan import Batches, Generator, Needs, Queries, Threads, TokenPlan, TokenStage
from benchmarks.rag.policies import Foresight
from spillway.agents.core.policies.fifo import Expired, Naive
from spillway.agents.core.policy import Shortfall, StageFacts, StageView

# Binary fractions: sums of them are exact.
PLAIN = TokenProfile(alpha=1.0, beta=0.25, gamma=0.125)


def ints(*values):
    return np.array(values, np.int64)


def alone(due, prompt, output, profile=PLAIN, slo=1e6, policy=Naive, *, until_first=False):
    plan = TokenPlan((TokenStage("lm", Generator(profile, until_first=until_first)),), slo)
    queries = Queries(np.array(due, float), {"lm": Needs(ints(*prompt), ints(*output))})
    return TokenEngine(plan, queries, lambda view, stage: policy(view)).run()


@pytest.mark.parametrize(
    ("bounds", "due", "prompt", "output", "finished"),
    [
        # 1 + .25 + 4 * .125 = 1.75 to the first token, then two of 1.25
        ({}, [0.0], [4], [3], [4.25]),
        # a: 1.75, then 1.25 each: 3.0, 4.25 (b has come at 3.25), with b: 1.5 + 1 = 2.5 to 6.75, and one more: 8.0
        ({}, [0.0, 3.25], [4, 8], [5, 1], [8.0, 6.75]),
        # b comes at the end of an iteration and joins at once
        ({}, [0.0, 3.0], [4, 8], [3, 1], [5.5, 5.5]),
        # a reads 4, alone: 1.75. Then 2 of a and 2 of b: 1 + .5 + .5 = 2, to 3.75. Then 2 of b alone: 1.5
        ({"chunk": 4}, [0.0, 0.5], [6, 4], [1, 1], [3.75, 5.25]),
        ({"most": 1}, [0.0, 0.0], [4, 4], [1, 1], [1.75, 3.5]),
        # a alone to 1.75; both: 1.5 + .5 = 2, to 3.75. They hold 6 and 5 and would hold 13, so b gives way with one of
        # its six. a needs three more alone, to 7.5; b is read again (4 + 1 tokens: 1.875) and needs four more
        ({"kv": 12}, [0.0, 0.5], [4, 4], [5, 6], [7.5, 14.375]),
    ],
)
def test_sequences_join_and_leave_as_worked_out_by_hand(bounds, due, prompt, output, finished):
    result = alone(due, prompt, output, TokenProfile(1.0, 0.25, 0.125, **bounds))
    assert result.finished.tolist() == finished
    assert result.charged.sum() == pytest.approx(result.busy["lm"])


def test_nothing_is_spent_on_what_is_dropped():
    result = alone([0.0, 0.5, 0.75], [4, 4, 4], [2, 1, 1], TokenProfile(1.0, 0.25, 0.125, most=1), 2.4, Expired)
    assert result.lost == ["", "lm", ""]
    assert result.charged[1] == 0.0


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
    assert many.charged.sum() == pytest.approx(many.busy["lm"])
    assert ((many.finished >= 0) ^ np.array([bool(lost) for lost in many.lost])).all()


def test_every_query_of_the_rag_pipeline_ends_once_under_every_policy():
    conversations = read_spec().draw(300, 8.0, seed=1)
    for policy in POLICIES:
        result = simulate_rag(conversations, policy, seed=1)
        dropped = np.array([bool(stage) for stage in result.lost])
        assert (np.isnan(result.finished) == dropped).all()
        assert (result.finished[~dropped] > result.due[~dropped]).all()
        busy = sum(result.busy[name] for name in ("rewrite", "retrieve", "generate"))
        assert result.charged.sum() == pytest.approx(busy)
        assert not (policy == "naive" and dropped.any())
        again = simulate_rag(conversations, policy, seed=1)
        np.testing.assert_array_equal(again.finished, result.finished)


def request(prompt=100, output=11, deadline=10.0):
    made = Generation("q", 0.0, deadline, prompt=prompt, output=output)
    made.started = made.entered = 0.0
    return made


def test_the_worst_path_behind_a_stage_counts_and_alone_a_stage_looks_at_its_own_work():
    seconds = {"rewrite": 1.0, "retrieve": 0.1, "search": 2.0, "generate": 0.5}
    view = StageView(
        "rewrite",
        facts={name: StageFacts(1, lambda _n, took=took: took, 1) for name, took in seconds.items()},
        successors={"rewrite": ("retrieve", "search"), "retrieve": ("generate",), "search": ("generate",)},
    )
    policy = Foresight(view, Recent(profile=1.0))
    assert policy.judge(6.5, 6.5, request()) is None
    refusal = policy.judge(6.6, 6.6, request())
    assert isinstance(refusal, Shortfall)
    assert (refusal.duration, refusal.execution, refusal.remaining) == (1.0, 2.5, 3.5)
    alone = Foresight(view, Recent(profile=1.0), alone=True)
    assert alone.judge(9.0, 9.0, request()) is None
    assert alone.judge(9.1, 9.1, request()) is not None


def test_the_command_gives_every_policy_on_every_seed_beside_the_paper():
    def run(*options):
        result = CliRunner().invoke(command.rag, ["--queries", "120", "--seeds", "2", "--rate", "9", *options])
        assert result.exit_code == 0, result.output
        return result.output

    told = json.loads(run("--json"))
    assert set(told["policies"]) == set(POLICIES)
    assert all(len(cells) == 2 for cells in told["policies"].values())
    shown = run()
    assert all(policy in shown for policy in POLICIES)
    assert "emulated" in shown
