"""Overload control: who is refused, where, and when."""

from math import floor

import pytest

from spillway.agents.core.batching import Batcher
from spillway.agents.core.policies import make
from spillway.agents.core.request import Request

from .scenes import IDLE, request, states, told, told_policy, view


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
    assert (refusal.reason, refusal.text) == ("overload", "stage b has a queueing delay over its limit")


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


# Where the estimate refuses everything, one request a second is let in: the first of its second, at every stage.


def refusing(name="pard", stage="b"):
    made = told_policy(name, stage)
    made.tick(3.0, IDLE, states() | {"gate": [told("gate", hops=[1.0])]})
    return made


def let_in(policy, since, until, each=0.1):
    """By t_s, those of the requests sent every `each` seconds that enter a batch."""
    sent = [since + number * each for number in range(round((until - since) / each))]
    return [at for at in sent if policy.judge(at + 0.01, at + 0.01, request(sent=at)) is None]


@pytest.mark.parametrize("name", ["pard", "spillway", "lower"])
def test_one_a_second_is_let_in_and_nothing_else(name):
    assert let_in(refusing(name), 100.05, 106.05) == pytest.approx([102.05, 103.05, 104.05, 105.05])


def test_stages_that_refuse_from_different_moments_on_let_the_same_requests_in():
    """Otherwise a join behind two of them would never be given both parts of one."""
    early, late = refusing(), refusing()
    let_in(early, 100.05, 101.05)
    let_in(late, 100.55, 101.05)
    assert let_in(early, 101.05, 108.0)[1:] == let_in(late, 101.05, 108.0)[1:] != []


def test_none_is_let_in_as_long_as_the_estimate_lets_others_in():
    made = refusing()
    for number in range(100):
        at = 100.0 + number / 10
        assert made.judge(at, at, request(sent=at, slo=5.0)) is None
        assert made.judge(at, at, request(sent=at)) is not None


def test_a_request_past_its_deadline_is_no_probe():
    made = refusing()
    assert made.judge(100.0, 100.0, request(sent=100.0)) is not None
    assert made.judge(105.0, 105.0, request(sent=104.0)) is not None
    assert made.judge(105.0, 105.0, request(sent=104.9)) is None


def test_a_senders_clock_that_is_ahead_does_not_end_the_probes():
    made = refusing()
    made.judge(100.0, 100.0, request(sent=100.0))
    assert made.judge(100.0, 100.0, request(sent=900.0)) is None
    assert [floor(at) for at in let_in(made, 101.0, 105.0)] == [103, 104]


# The sliding window of Nexus: what is dropped with the request behind it, and what is not.

DURATION = 0.05  # of a full batch at stage a of the scenes


def waiting(policy, *deadlines):
    """Requests by their deadlines, in the order in which they wait."""
    made = [Request(f"{number}", 0, 0.0, deadline, 0.0, (), {}) for number, deadline in enumerate(deadlines)]
    for one in made:
        policy.push(0.0, one)
    return made


def filled(policy, room, starts=1.0):
    batch, drops = [], []
    policy.fill(0.9, starts, room, batch, drops)
    assert all(request.entered == 0.9 for request in batch)
    return [request.request_id for request in batch], [(request.request_id, refusal) for request, refusal in drops]


def test_in_the_order_of_deadlines_only_the_hopeless_are_dropped():
    policy = make("nexus", view())
    waiting(policy, 1.01, 1.02, 1.06, 1.07, 1.08, 1.09)
    batch, drops = filled(policy, 3)
    assert batch == ["2", "3", "4"]
    assert [name for name, _ in drops] == ["0", "1"]
    assert len(policy) == 1


def test_one_that_could_make_it_is_dropped_with_one_behind_it_that_cannot():
    policy = make("nexus", view())
    waiting(policy, 1.06, 1.01, 1.07, 1.08)
    batch, drops = filled(policy, 3)
    assert batch == ["2", "3"]
    assert [name for name, _ in drops] == ["0", "1"]
    assert [refusal.reason for _, refusal in drops] == ["too-late", "too-late"]
    assert "behind it" in drops[0][1].text


def test_what_waits_beyond_the_window_is_not_looked_at():
    policy = make("nexus", view())
    waiting(policy, 1.06, 1.07, 1.01)
    assert filled(policy, 2) == (["0", "1"], [])
    assert len(policy) == 1


def test_where_no_window_makes_it_all_are_dropped():
    policy = make("nexus", view())
    waiting(policy, 1.06, 1.01)
    batch, drops = filled(policy, 4)
    assert (batch, len(drops), len(policy)) == ([], 2, 0)


def test_the_window_slides_by_shares_too():
    policy = make("nexus-split", view())
    requests = waiting(policy, 10.0, 0.5, 10.0)
    for one in requests:
        one.arrived = 0.8
    batch, drops = filled(policy, 3)
    assert batch == ["2"]
    assert [refusal.reason for _, refusal in drops] == ["over-share", "over-share"]
