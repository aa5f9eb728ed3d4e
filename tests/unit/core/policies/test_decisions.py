"""Who is let into a batch: every policy on one chain that was worked out by hand (see `scenes`)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.core.policies import make
from spillway.agents.core.policy import Load

from .scenes import IDLE, TAKES, request, states, told_policy, view

# Milliseconds from t_s to the latest t_e that is let in at a: 500 - 50, less what is expected of b and c.
LATEST = {
    "pard": 500 - 50 - 112,
    "back": 500 - 50,
    "sf": 500 - 50 - 70,
    "lower": 500 - 50 - 17 - 70,
    "upper": 500 - 50 - 17 - 140,
    "fcfs": 500 - 50 - 112,
    "hbf": 500 - 50 - 112,
    "lbf": 500 - 50 - 112,
    "instant": 500 - 50 - 112,
    "nexus": 500 - 50,
    # The share of a is 50 of 120 ms: 208.3 ms from its arrival at a, which is when it was sent.
    "nexus-split": 158,
    "split": 158,
}


@pytest.mark.parametrize("name", list(LATEST))
def test_the_latest_start_that_is_let_in(name):
    assert latest_ms(told_policy(name)) == pytest.approx(LATEST[name], abs=0.51)


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
    assert latest_ms(told_policy("upper", "c")) == pytest.approx(470, abs=0.51)


def test_before_the_first_synchronisation_only_durations_are_known():
    assert latest_ms(make("pard", view())) == pytest.approx(500 - 50 - 70, abs=0.51)


def test_the_measured_duration_takes_the_profiles_place():
    for name, left in (("pard", 500 - 90 - 112), ("nexus", 500 - 90)):
        policy = told_policy(name)
        policy.tick(3.0, Load(0, 0, 0, 0, 0, 0.0, 0, 0, 0, duration=0.09), states())
        assert latest_ms(policy) == pytest.approx(left, abs=0.51)


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
    policy = told_policy("pard", predict=lambda _request: {"b": ()})  # b ends it
    assert policy.needs(request()).path == ("b",)
    assert latest_ms(policy) == pytest.approx(500 - 50 - 15 - 40 - 20, abs=0.51)


def test_clipper_counts_the_wait_at_the_stage_alone():
    policy = told_policy("clipper++", "b")  # 40 of 120 ms: 166.7 ms of waiting
    assert policy.judge(100.466, 100.5, request(arrived=100.3)) is None
    refusal = policy.judge(100.467, 100.5, request(arrived=100.3))
    assert refusal.reason == "over-share"
    assert refusal.text == "b: 167.0 ms of 166.7 ms allotted to this stage"


def test_a_share_is_of_the_requests_own_slo():
    policy = told_policy("split")
    assert policy.judge(100.2, 100.2, request(slo=1.0)) is None
    assert policy.judge(100.2, 100.2, request(slo=0.5)) is not None


def test_worst_case_shares_follow_the_longest_times():
    policy = told_policy("wcl")
    assert latest_ms(policy) == pytest.approx(158, abs=0.51)  # nothing seen: as split
    told = states()
    told["b"].append(told["b"][0].__class__("b", 2, 3.0, longest=0.42, batch=5))
    policy.tick(3.0, IDLE, told)
    assert latest_ms(policy) == pytest.approx(0, abs=0.51)  # 50 of 50 + 420 + 30: 50 ms


def test_worst_case_tells_the_longest_time():
    policy = told_policy("wcl")
    policy.judge(100.02, 100.05, request())
    assert policy.report(101.0, IDLE).longest == pytest.approx(0.1)
