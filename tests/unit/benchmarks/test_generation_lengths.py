"""Lengths learned by class of prompt, and the estimates made of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.core.policy import Load, Shortfall, StageFacts, StageState, StageView
from benchmarks.rag.estimates import Average, Generate, Prefill, Recent
from benchmarks.rag.generation import Generation, TokenProfile
from benchmarks.rag.lengths import LengthsByPrompt, bucket
from benchmarks.rag.policies import Foresight

NOTHING = Load(0, 0, 0, 0, 0, 0.0, 0, 0, 0)


def test_a_class_knows_its_own_lengths():
    lengths = LengthsByPrompt()
    for _ in range(100):
        lengths.observe(1000, 400)
        lengths.observe(50, 10)
    assert lengths.quantile(1000, 0.5) == pytest.approx(400, rel=0.1)
    assert lengths.quantile(50, 0.5) == pytest.approx(10, rel=0.1)


def test_a_class_never_seen_is_taken_for_everybody():
    lengths = LengthsByPrompt()
    assert lengths.quantile(7, 0.5) == 1.0
    for _ in range(10):
        lengths.observe(1000, 400)
    assert lengths.quantile(7, 0.5) == pytest.approx(400, rel=0.1)


def test_a_class_that_is_only_asked_about_is_in_time_taken_for_everybody():
    lengths = LengthsByPrompt()
    for _ in range(50):
        lengths.observe(1000, 400)
    for _ in range(500):
        lengths.observe(50, 10)
    assert lengths.quantile(1000, 0.5) > 300
    for _ in range(1000):
        lengths.quantile(1000, 0.5)
    assert lengths.quantile(1000, 0.5) < 20


def test_what_was_learned_fades():
    lengths = LengthsByPrompt(memory=20)
    for _ in range(100):
        lengths.observe(1000, 400)
    for _ in range(60):
        lengths.observe(1000, 10)
    assert lengths.quantile(1000, 0.5) == pytest.approx(10, rel=0.1)


@given(
    st.lists(st.tuples(st.integers(1, 10**7), st.integers(1, 10**7)), min_size=1, max_size=60), st.integers(1, 10**7)
)
def test_a_quantile_grows_with_its_share_and_memory_is_bounded(seen, prompt):
    lengths = LengthsByPrompt()
    for each in seen:
        lengths.observe(*each)
    found = [lengths.quantile(prompt, share) for share in (0.01, 0.5, 0.99)]
    assert found[0] <= found[1] * 1.1  # asking fades a class, a little
    assert found[1] <= found[2] * 1.1
    assert found[0] >= 1
    assert len(lengths) <= 160
    assert 0 <= bucket(prompt) < 160


def test_an_average_forgets_and_then_the_profile_stands_in():
    average = Average(window=5.0)
    average.add(2.0)
    average.add(4.0)
    assert average.close(1.0) == 3.0
    average.add(9.0)
    assert average.close(3.5) == pytest.approx((0.5 * 2 * 3 + 9) / (0.5 * 2 + 1))
    assert average.close(9.0) is None
    assert Recent(profile=7.0).seconds(None) == 7.0


def request(prompt=100, output=11, deadline=10.0):
    made = Generation("q", 0.0, deadline, prompt=prompt, output=output)
    made.started = made.entered = 0.0
    return made


PROFILE = TokenProfile(alpha=0.01, beta=0.0, gamma=0.001, chunk=64)


def test_a_prefill_takes_an_iteration_for_every_chunk():
    assert Prefill(PROFILE).seconds(request(100)) == pytest.approx(2 * 0.01 + 0.1)


def test_an_oracle_takes_the_true_length_at_the_recent_pace():
    own = Generate(PROFILE, None)
    assert own.seconds(request()) == pytest.approx(0.12 + 10 * 0.01)
    done = request()
    done.first = 1.0
    own.ended(3.0, done)
    own.close(3.0)
    assert own.seconds(request()) == pytest.approx(0.12 + 10 * 0.2)


def view(**facts):
    return StageView(
        "rewrite",
        facts={name: StageFacts(1, lambda _n, seconds=seconds: seconds, 1) for name, seconds in facts.items()},
        successors={"rewrite": ("retrieve", "search"), "retrieve": ("generate",), "search": ("generate",)},
    )


def test_the_worst_path_behind_a_stage_counts_and_a_refusal_says_its_terms():
    policy = Foresight(view(rewrite=1.0, retrieve=0.1, search=2.0, generate=0.5), Recent(profile=1.0))
    assert policy.judge(6.5, 6.5, request(deadline=10.0)) is None
    refusal = policy.judge(6.6, 6.6, request(deadline=10.0))
    assert isinstance(refusal, Shortfall)
    assert (refusal.duration, refusal.execution, refusal.remaining) == (1.0, 2.5, 3.5)


def test_the_later_stages_word_replaces_their_profile():
    policy = Foresight(view(rewrite=1.0, retrieve=0.1, search=2.0, generate=0.5), Recent(profile=1.0))
    told = {
        "search": [StageState("search", 0, 1.0, queueing=1.0, entered=1.0, duration=3.0)],
        "generate": [StageState("generate", 0, 1.0, queueing=0.5, entered=1.0, duration=1.0)],
        "retrieve": [StageState("retrieve", 0, 1.0, duration=0.1)],
    }
    policy.tick(1.0, NOTHING, told)
    assert policy.judge(3.5, 3.5, request()) is None
    refusal = policy.judge(3.6, 3.6, request())
    assert (refusal.queueing, refusal.execution, refusal.waits) == (1.5, 4.0, 0.0)


def test_alone_a_stage_looks_at_its_own_work_only():
    policy = Foresight(view(rewrite=1.0, retrieve=0.1, search=2.0, generate=0.5), Recent(profile=1.0), alone=True)
    assert policy.judge(9.0, 9.0, request()) is None
    assert policy.judge(9.1, 9.1, request()) is not None


def test_a_stage_that_refused_everybody_tries_again_when_its_average_is_forgotten():
    policy = Foresight(view(rewrite=1.0), Recent(profile=1.0))
    slow = request()
    policy.ended(20.0, slow)
    policy.report(20.0, NOTHING)
    assert policy.judge(21.0, 21.0, request(deadline=31.0)) is not None
    policy.report(26.0, NOTHING)
    assert policy.judge(26.0, 26.0, request(deadline=36.0)) is None
