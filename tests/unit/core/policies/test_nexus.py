"""The sliding window of Nexus: what is dropped with the request behind it, and what is not."""

from agents.core.policies import make
from agents.core.request import Request

from .scenes import view

DURATION = 0.05  # of a full batch at stage a of the scenes


def waiting(policy, *deadlines):
    """Requests by their deadlines, in the order in which they wait."""
    made = [Request(f"{number}", 0, 0.0, deadline, 0.0, (), {}) for number, deadline in enumerate(deadlines)]
    for request in made:
        policy.push(0.0, request)
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
    for request in requests:
        request.arrived = 0.8
    batch, drops = filled(policy, 3)
    assert batch == ["2"]
    assert [refusal.reason for _, refusal in drops] == ["over-share", "over-share"]
