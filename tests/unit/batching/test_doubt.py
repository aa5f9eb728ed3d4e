"""A stage that refuses everything by a duration that it measured comes to doubt the duration."""

import pytest

from agents.core.batching import Batcher
from agents.core.durations import estimate_of
from agents.core.policies import make
from agents.core.policy import StageFacts, StageView
from agents.core.request import Request

SLO = 0.4


def batcher(profile=None):
    facts = {"s": StageFacts(4, profile or (lambda _n: 0.0), 1)}
    policy = make("pard", StageView("s", slo=SLO, facts=facts, successors={"s": ()}))
    return Batcher(policy, 4, duration=estimate_of(profile))


def synchronise(batcher, now):
    batcher.tick(now, {"s": [batcher.report(now)]})


def run_one(batcher, now, takes):
    """Let a request in and its batch take so long; False if it was refused."""
    batcher.push(now, Request(f"r{now}", 0, now, now + SLO, now, (), {}))
    if not batcher.starts:
        batcher.drops.clear()
        return False
    (batch,) = batcher.starts
    batcher.starts.clear()
    batcher.complete(now + takes, batch.worker, takes)
    return True


def slowed(profile=None):
    """A batcher whose model was too slow for its SLO for so long that it refuses everything."""
    made = batcher(profile)
    now = 0.0
    while run_one(made, now, 0.9):
        now += 1.0
        synchronise(made, now)
        assert now < 100
    return made, now


@pytest.mark.parametrize("profile", [None, lambda n: 0.02 + 0.005 * n], ids=["without a profile", "with one"])
def test_it_lets_requests_in_again_after_a_period_of_nothing_but_drops(profile):
    made, now = slowed(profile)
    synchronise(made, now + 1.0)
    assert run_one(made, now + 1.5, 0.03)
    for period in range(40):  # the model is fast again, and each measurement tells a little of it
        synchronise(made, now + 2.0 + period)
        run_one(made, now + 2.5 + period, 0.03)
    assert all(run_one(made, now + 50 + turn, 0.03) for turn in range(5))


def test_a_duration_is_not_doubted_while_a_batch_is_at_work():
    made, now = slowed()
    synchronise(made, now + 1.0)
    made.push(now + 1.5, Request("long", 0, now, now + 9.0, now, (), {}))
    made.starts.clear()
    synchronise(made, now + 2.0)
    made.push(now + 2.1, Request("late", 0, now, now + 2.0, now, (), {}))
    before = made.load().duration
    synchronise(made, now + 3.0)
    assert made.load().duration == before


def test_a_quiet_period_is_no_reason_to_doubt():
    made = batcher()
    run_one(made, 0.0, 0.03)
    synchronise(made, 1.0)
    synchronise(made, 2.0)
    assert made.load().duration == 0.03
