"""Who is let into a batch, on one chain that was worked out by hand (see `scenes`)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.core.policies import make
from spillway.agents.core.policy import Load

from .scenes import IDLE, TAKES, request, states, told_policy, view


def latest_ms(policy, made=None):
    """To half a millisecond."""
    made = made or request()
    now = made.sent + 0.1
    accepted = [n for n in range(1200) if policy.judge(now, made.sent + n * 0.0005, made) is None]
    assert accepted == list(range(len(accepted)))  # no later start is let in where an earlier one is not
    return (len(accepted) - 1) * 0.5


def test_equation_three_term_by_term():
    policy = told_policy("pard")
    assert policy.judge(100.2, 100.33, request()) is None  # L = 330 + 50 + 112 = 492 ms
    refusal = policy.judge(100.2, 100.34, request())  # 502 ms
    assert (refusal.stage, refusal.reason, refusal.deadline, refusal.sent) == ("a", "too-late", 100.5, 100.0)
    assert refusal.duration == 0.05
    assert (refusal.queueing, refusal.execution, refusal.waits) == pytest.approx((0.017, 0.07, 0.025))
    assert refusal.starts - refusal.sent + refusal.remaining - (refusal.starts - refusal.now) == pytest.approx(0.502)


def test_at_the_last_stage_nothing_is_left_but_its_own_batch():
    assert latest_ms(told_policy("pard", "c")) == pytest.approx(470, abs=0.51)


def test_before_the_first_synchronisation_only_durations_are_known():
    assert latest_ms(make("pard", view())) == pytest.approx(500 - 50 - 70, abs=0.51)


@given(recent=st.fixed_dictionaries({name: st.integers(1, 60) for name in TAKES}), planned=st.integers(1, 60))
def test_with_recent_durations_those_of_the_batches_that_lately_ended_count(recent, planned):
    said = {
        name: [replace(each, duration=planned / 1000, recent_duration=recent[name] / 1000) for each in told]
        for name, told in states().items()
    }
    for setting, durations in (("pard", [planned] * 3), ("pard:duration=recent", list(recent.values()))):
        policy = make(setting, view())
        policy.tick(3.0, Load(0, 0, 0, 0, 0, 0.0, 0, 0, 0, duration=planned / 1000), said)
        assert latest_ms(policy) == pytest.approx(500 - sum(durations) - 17 - 25, abs=0.51)


def test_with_recent_durations_a_stage_whose_batches_none_saw_takes_one_query():
    policy = make("pard:duration=recent", view())
    assert latest_ms(policy) == pytest.approx(500 - (50 + 40 + 30) / 5, abs=0.51)
    policy.tick(2.0, IDLE, states())  # nothing ended
    assert latest_ms(policy) == pytest.approx(500 - (50 + 40 + 30) / 5 - 17 - 25, abs=0.51)


def test_the_quantile_is_a_parameter():
    told = states()
    told["b"][0] = told["b"][0].__class__("b", 0, 2.0, waits=[0.0] * 5 + [0.04] * 5, waits_seen=10, batch=5)
    for setting, w in (("pard:quantile=.1", 0.005), ("pard:quantile=.9", 0.045)):
        policy = make(setting, view())
        policy.tick(2.0, IDLE, told)
        assert policy.needs(request()).waits == pytest.approx(w)


def test_a_foretold_path_narrows_the_estimate():
    policy = told_policy("pard:paths=oracle", foresight={"oracle": lambda _request, _share: {"b": ()}})  # b ends it
    assert policy.needs(request()).path == ("b",)
    assert latest_ms(policy) == pytest.approx(500 - 50 - 15 - 40 - 20, abs=0.51)
