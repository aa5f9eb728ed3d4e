"""What the batcher asks of a policy beside the order: admission on arrival, and dropping after a tick."""

import pytest

from spillway.agents.core.batching import Batcher
from spillway.agents.core.durations import Estimate
from spillway.agents.core.policies.fifo import Fifo
from spillway.agents.core.policy import Refusal, Shortfall, StageView
from spillway.lineage import reasons
from tests.unit.core.builders import request


class Choosy(Fifo):
    """Admits none called "x", and after a tick drops all that wait."""

    __slots__ = ("heard",)

    def admit(self, now, request):
        return Refusal("overload") if request.request_id == "x" else None

    def tick(self, now, load, states):
        self.heard = load

    def expire(self, now, drops):
        drops += [(request, Refusal(reasons.EXPIRED)) for request in self._waiting]
        self._waiting.clear()


def test_a_policy_hears_how_many_workers_its_queue_feeds():
    made = Batcher(Choosy(StageView("stage", instances=3)), 2, workers=0)
    counts = []
    for act, worker in (("attach", 0), ("attach", 1), ("drain", 0), ("lose", 1)):
        getattr(made, act)(1.0, worker)
        counts.append(made.policy.view.instances)
    assert counts == [1, 2, 1, 1]  # it goes by one at least


def test_who_is_not_admitted_is_dropped_on_arrival_and_counts_as_arrived():
    made = Batcher(Choosy(StageView("stage")), 2)
    for name in "axb":
        made.push(1.0, request(name))
    assert [(each.request_id, refusal.reason) for each, refusal in made.drops] == [("x", "overload")]
    assert (made.arrived, made.total_drops, made.depth) == (3, 1, 1)


def test_what_expires_with_a_tick_is_dropped_without_a_wake_up():
    made = Batcher(Choosy(StageView("stage")), 1, duration=lambda n: 5.0)
    for name in "abc":  # a runs, b forms, c waits
        made.push(1.0, request(name))
    made.tick(2.0, {})
    assert [each.request_id for each, _ in made.drops] == ["c"]
    assert not made.timed


def test_a_policy_hears_how_long_a_batch_takes_once_that_was_measured():
    policy = Choosy(StageView("stage"))
    made = Batcher(policy, 2, duration=Estimate(lambda n: 1.0 * n))
    made.tick(0.0, {})
    assert policy.heard.duration == 0.0
    made.push(1.0, request("a"))
    made.push(1.0, request("b"))
    made.complete(4.0, 0, 3.0)
    made.tick(5.0, {})
    assert policy.heard.duration == pytest.approx(2.2)  # of two; the one that was measured took longer


def test_a_shortfall_says_every_term():
    refusal = Shortfall(
        "face", now=10.1, starts=10.15, sent=10.0, deadline=10.4, duration=0.05, queueing=0.1, execution=0.2, waits=0.03
    )
    assert refusal.reason == "too-late"
    assert abs(refusal.remaining - 0.43) < 1e-9
    assert refusal.text == (
        "face: needs 430.0 ms more, 300.0 ms are left to its deadline; spent 100.0, batch wait 50.0, execution 50.0, "
        "later queueing 100.0, later execution 200.0, later waits and hops 30.0 ms"
    )


def test_a_shortfall_past_the_deadline_and_with_no_known_duration_says_so():
    refusal = Shortfall("face", now=10.5, starts=10.5, sent=10.0, deadline=10.4785, duration=0.0)
    assert refusal.text == (
        "face: needs 0.0 ms more, is 21.5 ms past its deadline; spent 500.0, batch wait 0.0, execution not known yet, "
        "later queueing 0.0, later execution 0.0, later waits and hops 0.0 ms"
    )
