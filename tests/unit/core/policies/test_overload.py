"""Overload control: who is refused, where, and when."""

import pytest

from agents.core.batching import Batcher
from agents.core.policies import make

from .scenes import IDLE, request, told, told_policy, view


def overloaded(setting="oc", stage="a", queueing=0.026, **more):
    policy = make(setting, view(stage, **more))
    policy.tick(2.0, IDLE, {"b": [told("b", queueing=queueing, entered=5.0)], "a": []})
    return policy


def refused(policy, count=2_000):
    return [policy.admit(100.0, request(sent=100.0 + n / 97)) is not None for n in range(count)]


def test_in_overload_the_root_refuses_four_of_ten():
    assert sum(refused(overloaded())) == pytest.approx(800, abs=70)
    assert sum(refused(overloaded("oc:alpha=.1"))) == pytest.approx(200, abs=45)
    refusal = next(filter(None, (overloaded().admit(100.0, request(sent=n / 97)) for n in range(99))))
    assert (refusal.reason, refusal.text) == ("overload", "stage b queues for too long")


def test_the_threshold_is_25_ms_and_can_be_20():
    assert not any(refused(overloaded(queueing=0.024)))
    assert any(refused(overloaded("oc:threshold=.02", queueing=0.024)))


def test_no_stage_but_a_root_refuses():
    assert not any(refused(overloaded(stage="b")))


def test_two_roots_refuse_the_same_requests_and_another_seed_others():
    assert refused(overloaded()) == refused(overloaded(replica=1))
    assert refused(overloaded()) != refused(overloaded(seed=1))


def test_it_ends_with_the_overload():
    policy = overloaded()
    policy.tick(3.0, IDLE, {"b": [told("b", queueing=0.02, entered=5.0)]})
    assert not any(refused(policy))


def test_all_that_is_admitted_is_served_and_the_queueing_of_the_last_period_told():
    policy = told_policy("oc")
    made = Batcher(policy, 1, duration=lambda n: 1.0)
    for _ in range(3):
        made.push(100.0, request())
    for now in (101.0, 102.0, 103.0):
        made.complete(now, 0)
    assert not made.drops
    assert made.report(104.0).queueing == pytest.approx(1 / 3)  # the third entered a second after it came
    assert made.report(105.0).queueing == 0.0
