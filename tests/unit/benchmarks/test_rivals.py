"""The policies that only the paper's evaluation compares, on the chain of three stages that was worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.pard.rivals import NAMES, OVERLOAD, RIVALS, WorstCase, setting_of
from spillway.agents.core.batching import Batcher
from spillway.agents.core.policies import make, selected
from spillway.agents.core.policies.pard import Pard
from spillway.agents.core.policy import Load, StageView
from spillway.agents.core.request import Request
from spillway.agents.models.loading import load_policy
from tests.unit.core.policies.scenes import IDLE, request, states, told, told_policy, view
from tests.unit.core.policies.test_decisions import latest_ms
from tests.unit.core.policies.test_order import BUDGETS, enters_or_drops_each, taken
from tests.unit.core.policies.test_order import waiting as waiting_by_budget


def made(name, where):
    return make(selected(setting_of(name), load_policy), where)


def rival(name, *where, **more):
    return told_policy(setting_of(name), *where, **more)


@pytest.mark.parametrize("name", NAMES)
def test_each_is_made_by_its_name_even_for_a_stage_of_which_nothing_is_known(name):
    policy = made(name, StageView("stage"))
    assert policy.setting == setting_of(name)
    assert type(policy) is RIVALS.get(name, type(policy))


def test_a_short_name_keeps_its_parameters():
    assert setting_of("oc:alpha=.1") == "benchmarks.pard.rivals:OverloadControl:alpha=.1"
    assert setting_of("pard:quantile=.2") == "pard:quantile=.2"


# Milliseconds from t_s to the latest t_e that is let in at a: 500 - 50, less what is expected of b and c.
LATEST = {
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
    assert latest_ms(rival(name)) == pytest.approx(LATEST[name], abs=0.51)


def test_behind_the_last_stage_nothing_waits():
    assert latest_ms(rival("upper", "c")) == pytest.approx(470, abs=0.51)


def test_nexus_takes_the_measured_duration_in_the_profiles_place():
    policy = rival("nexus")
    policy.tick(3.0, Load(0, 0, 0, 0, 0, 0.0, 0, 0, 0, duration=0.09), states())
    assert latest_ms(policy) == pytest.approx(500 - 90, abs=0.51)


def test_clipper_counts_the_wait_at_the_stage_alone():
    policy = rival("clipper++", "b")  # 40 of 120 ms: 166.7 ms of waiting
    assert policy.judge(100.466, 100.5, request(arrived=100.3)) is None
    refusal = policy.judge(100.467, 100.5, request(arrived=100.3))
    assert refusal.reason == "over-share"
    assert refusal.text == "b: 167.0 ms of 166.7 ms allotted to this stage"


def test_a_share_is_of_the_requests_own_slo():
    policy = rival("split")
    assert policy.judge(100.2, 100.2, request(slo=1.0)) is None
    assert policy.judge(100.2, 100.2, request(slo=0.5)) is not None


def test_worst_case_shares_follow_the_longest_times():
    policy = rival("wcl")
    assert latest_ms(policy) == pytest.approx(158, abs=0.51)  # nothing seen: as split
    shared = {}
    policy, other = made("wcl", view(shared=shared)), made("wcl", view("b", replica=2, shared=shared))
    assert other.judge(100.0, 100.38, request()) is not None  # what is refused does not count
    assert other.judge(100.0, 100.38, request(slo=2.0)) is None  # ends after 420 ms
    other.report(101.0, IDLE)
    policy.tick(102.0, IDLE, states())
    assert latest_ms(policy) == pytest.approx(0, abs=0.51)  # 50 of 50 + 420 + 30: 50 ms


def test_the_longest_is_that_of_the_window():
    policy, longest = made("wcl", view()), []
    for now, takes in enumerate([0.5, 0.2, 0.0, 0.1, 0.1, 0.1, 0.1], start=1):
        policy.judge(100.0, 100.0 + takes - 0.05, request(slo=10.0))
        policy.report(float(now), IDLE)
        longest.append(policy.view.shared[WorstCase]["a", 0])
    assert longest == pytest.approx([0.5, 0.5, 0.5, 0.5, 0.5, 0.2, 0.1])


# Overload control: who is refused, where, and when.


def overloaded(setting="oc", stage="a", queueing=0.026, **more):
    policy = made(setting, view(stage, **more))
    policy.tick(2.0, IDLE, {"b": [told("b", queueing=queueing, entered=5.0)], "a": []})
    return policy


def refused(policy, count=2_000):
    return [policy.admit(100.0, request(sent=100.0 + n / 97)) is not None for n in range(count)]


def test_in_overload_the_root_refuses_four_of_ten():
    assert sum(refused(overloaded())) == pytest.approx(800, abs=70)
    assert sum(refused(overloaded("oc:alpha=.1"))) == pytest.approx(200, abs=45)
    refusal = next(filter(None, (overloaded().admit(100.0, request(sent=n / 97)) for n in range(99))))
    assert (refusal.reason, refusal.text) == (OVERLOAD, "stage b has a queueing delay over its limit")


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
    policy = rival("oc")
    batcher = Batcher(policy, 1, duration=lambda n: 1.0)
    for _ in range(3):
        batcher.push(100.0, request())
    for now in (101.0, 102.0, 103.0):
        batcher.complete(now, 0)
    assert not batcher.drops
    assert batcher.report(104.0).queueing == pytest.approx(1 / 3)  # the third entered a second after it came
    assert batcher.report(105.0).queueing == 0.0


# The sliding window of Nexus: what is dropped with the request behind it, and what is not.

DURATION = 0.05  # of a full batch at stage a of the scenes


def waiting(policy, *deadlines):
    """Requests by their deadlines, in the order in which they wait."""
    requests = [Request(f"{number}", 0, 0.0, deadline, 0.0, (), {}) for number, deadline in enumerate(deadlines)]
    for one in requests:
        policy.push(0.0, one)
    return requests


def filled(policy, room, starts=1.0):
    batch, drops = [], []
    policy.fill(0.9, starts, room, batch, drops)
    assert all(request.entered == 0.9 for request in batch)
    return [request.request_id for request in batch], [(request.request_id, refusal) for request, refusal in drops]


def test_in_the_order_of_deadlines_only_the_hopeless_are_dropped():
    policy = made("nexus", view())
    waiting(policy, 1.01, 1.02, 1.06, 1.07, 1.08, 1.09)
    batch, drops = filled(policy, 3)
    assert batch == ["2", "3", "4"]
    assert [name for name, _ in drops] == ["0", "1"]
    assert len(policy) == 1


def test_one_that_could_make_it_is_dropped_with_one_behind_it_that_cannot():
    policy = made("nexus", view())
    waiting(policy, 1.06, 1.01, 1.07, 1.08)
    batch, drops = filled(policy, 3)
    assert batch == ["2", "3"]
    assert [name for name, _ in drops] == ["0", "1"]
    assert [refusal.reason for _, refusal in drops] == ["too-late", "too-late"]
    assert "behind it" in drops[0][1].text


def test_what_waits_beyond_the_window_is_not_looked_at():
    policy = made("nexus", view())
    waiting(policy, 1.06, 1.07, 1.01)
    assert filled(policy, 2) == (["0", "1"], [])
    assert len(policy) == 1


def test_where_no_window_makes_it_all_are_dropped():
    policy = made("nexus", view())
    waiting(policy, 1.06, 1.01)
    batch, drops = filled(policy, 4)
    assert (batch, len(drops), len(policy)) == ([], 2, 0)


def test_the_window_slides_by_shares_too():
    policy = made("nexus-split", view())
    requests = waiting(policy, 10.0, 0.5, 10.0)
    for one in requests:
        one.arrived = 0.8
    batch, drops = filled(policy, 3)
    assert batch == ["2"]
    assert [refusal.reason for _, refusal in drops] == ["over-share", "over-share"]


# The order.


@pytest.mark.parametrize(
    ("name", "rate", "order"),
    [
        ("instant", 250.0, ["500", "400", "300"]),
        ("split", 250.0, ["500", "400", "300"]),
        ("lbf", 250.0, ["300", "400", "500"]),
        ("hbf", 150.0, ["500", "400", "300"]),
        ("fcfs", 250.0, ["400", "500", "300"]),
    ],
)
def test_who_comes_first(name, rate, order):
    entered, _ = taken(waiting_by_budget(rival(name, rate=rate), 400, 500, 300))
    assert [each for each in entered if each in order] == order[: len(entered)]


def test_without_a_band_it_does_not():
    policy = rival("instant", rate=250.0)
    policy.tick(3.0, IDLE, states(rate=199.0))
    assert not policy.high_first


@given(
    st.sampled_from([name for name, kind in RIVALS.items() if issubclass(kind, Pard)]),
    BUDGETS,
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 4)), max_size=8),
)
def test_every_request_enters_once_or_is_dropped_once(name, budgets, steps):
    enters_or_drops_each(rival(name, rate=250.0), budgets, steps)
