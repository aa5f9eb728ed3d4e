"""What `spillway` does otherwise than PARD, each in a scene that fails when that is taken out. See `scenes`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agents.core.batching import Batcher
from agents.core.policies import make
from agents.core.policies.spillway_times import expected, settled
from agents.core.policy import Load, StageFacts, StageView

from .scenes import FACTS, IDLE, request, states, told, view

# d is 50, 40 and 30 ms for 5, so 10, 8 and 6 ms alone.
ALONE = 0.024


def policy(stage="a", setting="spillway", **more):
    made = make(setting, view(stage, **more))
    made.tick(2.0, IDLE, states())
    return made


def latest(made, waiting, since=99.0):
    """The latest t_e, in ms after t_s, that is let in; `since`: when the others came to wait."""
    if waiting:
        made.push(since, request("other", sent=101.0))
    return next(ms for ms in range(500, 0, -1) if made.judge(100.0, 100.0 + ms / 1000, request()) is None)


def test_strict_where_others_wait():
    # 500 - 50 at a - 17 of queues - 14 of batches of one - 25 of delays
    assert latest(policy(), waiting=True) == pytest.approx(500 - 50 - 56, abs=1)


def test_less_strict_as_long_as_a_burst_is_young():
    # b and c: spread evenly over [0, 30] and [0, 2] ms; .9 of the sums are below 28, .7 below 22.
    there = states()
    there["b"] = [told("b", waits=[(i + 0.5) * 0.0003 for i in range(100)])]
    there["c"] = [told("c", waits=[(i + 0.5) * 0.00002 for i in range(100)])]
    found = []
    for since in (99.0, 99.6):
        made = policy()
        made.tick(3.0, IDLE, there)
        found.append(latest(made, waiting=True, since=since))
    assert found == pytest.approx([500 - 50 - 14 - 28, 500 - 50 - 14 - 22], abs=2)


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


def test_delays_of_calm_times_do_not_count():
    made = policy()
    before = sorted(made.report(3.0, IDLE).waits)
    assert before[0] == pytest.approx(0.04, abs=0.001)
    assert before[-1] == pytest.approx(0.09, abs=0.001)  # waits spread over [0, d], and d - d(1)
    calm = {name: [replace(state, queueing=0.0) for state in some] for name, some in states().items()}
    made.tick(3.0, IDLE, calm)
    for _ in range(3000):
        made.judge(103.0, 103.0, request(sent=103.0))
    assert sorted(made.report(4.0, IDLE).waits) == before


def test_delays_under_load_do():
    made = policy()
    for _ in range(3000):
        made.judge(100.0, 100.0, request())
    assert set(made.report(3.0, IDLE).waits) == {0.0}


def seen(made, entries, at):
    """The newest delays that are told at `at`, once the requests of (t_b, t_e) are let in."""
    told_before = sorted(made.report(99.0, IDLE).waits)
    for now, starts in entries:
        assert made.judge(now, starts, request(sent=now)) is None
    told_now = sorted(made.report(at, IDLE).waits)
    for each in told_before:
        if each in told_now:
            told_now.remove(each)
    return told_now


def test_a_delay_is_the_wait_and_what_a_fuller_batch_takes_longer():
    # Three share a batch of 30 ms, which is 20 more than one alone takes.
    entries = [(100.0, 100.04), (100.01, 100.04), (100.02, 100.04)]
    assert seen(policy(), entries, 100.1) == pytest.approx([0.02 + 0.02, 0.03 + 0.02, 0.04 + 0.02])


def test_a_delay_is_known_when_the_batch_has_started():
    assert seen(policy(), [(100.0, 100.04)], 100.03) == []
    assert seen(policy(), [(100.0, 100.04)], 100.04) == pytest.approx([0.04])


def test_batches_of_several_instances_are_told_apart():
    entries = [(100.0, 100.02), (100.0, 100.04), (100.01, 100.04)]
    assert seen(policy(instances=2), entries, 100.1) == pytest.approx([0.02, 0.03 + 0.01, 0.04 + 0.01])


def test_what_forms_is_not_remembered_for_ever():
    made = policy()
    for turn in range(1000):
        made.judge(100.0, 101.0 + turn / 1e6, request())
    assert len(made._forming._batches) <= 2


def test_measured_durations_stand_in_for_profiled_ones():
    made = policy()
    made.tick(3.0, replace(IDLE, duration=0.1), states())  # twice as long
    assert latest(made, waiting=False) == pytest.approx(500 - 20 - 14, abs=1)
    assert seen(made, [(100.0, 100.04), (100.0, 100.04)], 100.1) == pytest.approx([0.04 + 0.02] * 2)


def test_the_smallest_budgets_come_first_however_long_an_overload_lasts():
    made = policy()
    for second in range(3, 60):
        made.tick(float(second), IDLE, states(rate=600.0))
    for name, sent in (("old", 100.0), ("new", 100.1)):
        made.push(100.1, request(name, sent=sent))
    assert made.pop(100.1).request_id == "old"


def test_before_a_burst_batches_are_reckoned_with_that_settle_behind_the_slowest_stage():
    facts = {
        "a": StageFacts(5, lambda n: 0.02 + 0.01 * n, 1),  # 71 a second: it is the slowest
        "b": StageFacts(8, lambda n: 0.01 + 0.005 * n, 1),  # 1 in 15 ms is less than comes meanwhile, 2 in 20 are more
        "c": StageFacts(2, lambda n: 0.01 * n, 1),
    }
    there = StageView("a", facts=facts, successors={"a": ("b",), "b": ("c",), "c": ()})
    assert [settled(facts[stage], 71.5) for stage in "abc"] == [5, 2, 1]
    assert expected(there, "b", 4) == pytest.approx([0.0025 + 0.005, 0.0075 + 0.005, 0.0125 + 0.005, 0.0175 + 0.005])


def test_a_silent_stage_is_taken_for_what_is_expected():
    made = policy()
    there = {name: some for name, some in states().items() if name != "b"}
    made.tick(3.0, IDLE, there)
    # b: 8 ms alone, waits of up to one of these, .9 of them below 7 ms; c: 2 ms of queue, 6 ms alone, 5 ms of delays
    assert latest(made, waiting=True) == pytest.approx(500 - 50 - 8 - 7 - 2 - 6 - 5, abs=1)


def test_it_works_where_nobody_speaks():
    made = make("spillway", view("a"))
    made.tick(1.0, IDLE, {})
    assert latest(made, waiting=False) == pytest.approx(500 - 1000 * ALONE, abs=1)
    made.tick(2.0, IDLE, {"a": [told("a", arrival_rate=1.0)]})
    made.push(100.0, request("other", sent=101.0))
    assert made.judge(100.0, 100.1, request()) is None
    assert made.judge(100.0, 100.44, request()) is not None


@given(st.floats(0, 0.47), st.sampled_from(["a", "b", "c"]))
def test_an_idle_stage_never_drops_what_makes_it_alone(spent, stage):
    made = policy(stage)
    batcher = Batcher(made, 5, duration=FACTS[stage].duration)
    behind = {"a": ALONE, "b": 0.014, "c": 0.006}[stage]
    assume(abs(spent + behind - 0.5) > 1e-6)  # sums of times are not exact
    batcher.push(100.0 + spent, request())
    assert bool(batcher.starts) == (spent + behind <= 0.5)
    assert len(batcher.starts) + len(batcher.drops) == 1
