"""What `spillway` does otherwise than PARD, each in a scene that fails when that is taken out. See `scenes`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agents.core.batching import Batcher
from agents.core.policies import make
from agents.core.policy import Load

from .scenes import FACTS, IDLE, request, states, told, view

# d is 50, 40 and 30 ms for 5, so 10, 8 and 6 ms alone.
ALONE = 0.024


def policy(stage="a", setting="spillway", **more):
    made = make(setting, view(stage, **more))
    made.tick(2.0, IDLE, states())
    return made


def latest(made, waiting):
    """The latest t_e, in ms after t_s, that is let in."""
    if waiting:
        made.push(100.0, request("other", sent=101.0))
    return next(ms for ms in range(500, 0, -1) if made.judge(100.0, 100.0 + ms / 1000, request()) is None)


def test_strict_where_others_wait():
    # 500 - 50 at a - 17 of queues - 70 of batches - 25 of waits, as PARD.
    assert latest(policy(), waiting=True) == pytest.approx(500 - 50 - 112, abs=1)


def test_lenient_where_none_waits():
    assert latest(policy(), waiting=False) == pytest.approx(500 - 1000 * ALONE, abs=1)


def test_what_is_refused_says_why():
    made = policy()
    made.push(100.0, request("other", sent=101.0))
    refusal = made.judge(100.0, 100.45, request())
    assert "later queueing 17.0" in refusal.text


def test_it_tells_what_waits_now_not_what_waited():
    made = policy()
    load = Load(40, 0, 10, 10, 2, 0.1, 20, 5, 5)
    state = made.report(3.0, load)
    assert state.queueing == pytest.approx(20 * 0.05 / 5)  # 20 queued, 5 of them in 50 ms
    assert state.entered == 1.0
    assert made.report(4.0, replace(load, queued=0)).queueing == 0.0


def test_waits_of_calm_times_do_not_count():
    made = policy()
    before = sorted(made.report(3.0, IDLE).waits)
    assert before[0] < 0.001
    assert before[-1] > 0.049  # spread over [0, d] as long as nothing is known
    calm = {name: [replace(state, queueing=0.0) for state in some] for name, some in states().items()}
    made.tick(3.0, IDLE, calm)
    for _ in range(3000):
        made.judge(103.0, 103.0, request(sent=103.0))
    assert sorted(made.report(4.0, IDLE).waits) == before


def test_waits_under_load_do():
    made = policy()
    for _ in range(3000):
        made.judge(100.0, 100.0, request())
    assert set(made.report(3.0, IDLE).waits) == {0.0}


def overloaded(made, mu, seconds):
    for second in range(3, 3 + seconds):
        made.tick(float(second), IDLE, states(rate=200.0 * mu))
    for name, sent in (("old", 100.0), ("new", 100.1)):
        made.push(100.1, request(name, sent=sent))
    return made.pop(100.1).request_id


@pytest.mark.parametrize(("mu", "seconds", "first"), [(3.0, 2, "old"), (1.2, 60, "old"), (1.5, 30, "new")])
def test_high_budgets_come_first_only_in_a_long_overload(mu, seconds, first):
    assert overloaded(policy(), mu, seconds) == first


def test_the_order_changes_back_below_full_load():
    made = policy()
    overloaded(made, 1.5, 30)
    for second in range(40, 45):
        made.tick(float(second), IDLE, states(rate=220.0))
    assert made.high_first
    for second in range(45, 80):
        made.tick(float(second), IDLE, states(rate=100.0))
    assert not made.high_first


def test_it_works_where_nobody_speaks():
    made = make("spillway", view("a"))
    made.tick(1.0, IDLE, {})
    assert latest(made, waiting=False) == pytest.approx(500 - 1000 * ALONE, abs=1)
    made.tick(2.0, IDLE, {"a": [told("a", arrival_rate=1.0)]})
    made.push(100.0, request("other", sent=101.0))
    assert made.judge(100.0, 100.1, request()) is None
    assert made.judge(100.0, 100.4, request()) is not None


@given(st.floats(0, 0.47), st.sampled_from(["a", "b", "c"]))
def test_an_idle_stage_never_drops_what_makes_it_alone(spent, stage):
    made = policy(stage)
    batcher = Batcher(made, 5, duration=FACTS[stage].duration)
    behind = {"a": ALONE, "b": 0.014, "c": 0.006}[stage]
    assume(abs(spent + behind - 0.5) > 1e-6)  # sums of times are not exact
    batcher.push(100.0 + spent, request())
    assert bool(batcher.starts) == (spent + behind <= 0.5)
    assert len(batcher.starts) + len(batcher.drops) == 1
