"""Where the estimate refuses everything, one request a second is let in: the first of its second, at every stage."""

from math import floor

import pytest

from .scenes import IDLE, request, states, told, told_policy


def refusing(name="pard", stage="b"):
    made = told_policy(name, stage)
    made.tick(3.0, IDLE, states() | {"gate": [told("gate", hops=[1.0])]})
    return made


def let_in(policy, since, until, each=0.1):
    """By t_s, those of the requests sent every `each` seconds that enter a batch."""
    sent = [since + number * each for number in range(round((until - since) / each))]
    return [at for at in sent if policy.judge(at + 0.01, at + 0.01, request(sent=at)) is None]


@pytest.mark.parametrize("name", ["pard", "spillway"])
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
