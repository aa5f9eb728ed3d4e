"""In which order requests enter a batch, and how those leave that never do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.core.batching import Batcher
from spillway.agents.core.policies import POLICIES, make
from spillway.agents.core.policies.pard import Pard

from .scenes import IDLE, request, states, told_policy, view

ORDERED = [name for name, kind in POLICIES.items() if issubclass(kind, Pard)]


def taken(policy, now=100.0, room=10):
    batch, drops = [], []
    policy.fill(now, now, room, batch, drops)
    return [each.request_id for each in batch], [(each.request_id, refusal.reason) for each, refusal in drops]


def waiting(policy, *budgets):
    """Let requests wait, each named by its budget in ms at 100.0; the later ones arrived later."""
    for budget in budgets:
        policy.push(100.0, request(str(budget), sent=100.0 + budget / 1000 - 0.5))
    return policy


def test_within_the_band_the_order_stays():
    policy = told_policy("pard", rate=250.0)
    policy.tick(3.0, IDLE, states(rate=190.0))  # T_s = 220, eps = 30 / 440: the band begins at .932
    assert policy.high_first
    assert policy._pressure.band == pytest.approx(30 / 440)
    policy.tick(4.0, IDLE, states(rate=150.0))
    assert not policy.high_first


def test_what_high_budget_first_never_takes_leaves_with_the_next_batch_after_its_deadline():
    policy = waiting(told_policy("pard", rate=250.0), 10, 20, 500, 400)
    assert taken(policy, now=100.015, room=1) == (["500"], [("10", "expired")])
    assert taken(policy, now=100.025, room=1) == (["400"], [("20", "expired")])


@pytest.mark.parametrize("name", ["pard", "spillway"])
def test_or_with_the_next_tick(name):
    made = Batcher(make(name, view()), 1, duration=lambda n: 0.05)  # the first one hangs
    for budget in (500, 499, 200, 400):
        made.push(100.0, request(str(budget), sent=100.0 + budget / 1000 - 0.5))
    made.tick(100.3, states())
    assert [(each.request_id, refusal.reason) for each, refusal in made.drops] == [("200", "expired")]
    assert not made.timed  # no wake-ups: a simulated queue would pay for each


BUDGETS = st.lists(st.integers(-200, 900), max_size=30)


@given(st.sampled_from(ORDERED), BUDGETS, st.lists(st.tuples(st.integers(0, 300), st.integers(1, 4)), max_size=8))
def test_every_request_enters_once_or_is_dropped_once(name, budgets, steps):
    enters_or_drops_each(told_policy(name, rate=250.0), budgets, steps)


def enters_or_drops_each(policy, budgets, steps):
    for number, budget in enumerate(budgets):
        policy.push(100.0, request(str(number), sent=100.0 + budget / 1000 - 0.5))
    seen, now = [], 100.0
    for wait, room in [*steps, (2_000, 100)]:
        now += wait / 1000
        entered, dropped = taken(policy, now, room)
        assert len(entered) <= room
        seen += entered + [who for who, _ in dropped]
    assert sorted(seen, key=int) == [str(number) for number in range(len(budgets))]
    assert len(policy) == 0


@given(BUDGETS, st.booleans())
def test_what_enters_has_the_largest_or_the_smallest_budget_of_those_that_could(budgets, high):
    policy = told_policy("pard", rate=250.0 if high else 150.0)
    budgets = [budget for budget in budgets if budget != 162]  # needs as much as it has, but for rounding
    for number, budget in enumerate(budgets):
        policy.push(100.0, request(str(number), sent=100.0 + budget / 1000 - 0.5))
    possible = sorted(budget for budget in budgets if budget > 50 + 112)
    batch = []
    policy.fill(100.0, 100.0, 3, batch, [])
    entered = [round((each.deadline - 100.0) * 1000) for each in batch]
    assert entered == (possible[::-1] if high else possible)[:3]


@given(BUDGETS)
def test_a_revoked_partition_takes_its_requests_along(budgets):
    policy = told_policy("pard")
    for number, budget in enumerate(budgets):
        made = request(str(number), sent=100.0 + budget / 1000 - 0.5)
        made.partition = number % 2
        policy.push(100.0, made)
    removed = policy.remove(lambda each: each.partition == 1)
    assert {int(each.request_id) % 2 for each in removed} <= {1}
    assert len(removed) == len(budgets) // 2
    assert len(policy) == len(budgets) - len(removed)
