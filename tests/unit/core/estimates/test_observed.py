"""What a queue says of itself once a period."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.core.estimates.observed import Observed
from agents.core.policy import Load, StageFacts, StageView

VIEW = StageView("s", 3, instances=2, facts={"s": StageFacts(4, lambda n: n / 100, 4)}, period=0.5)


def load(**counts):
    return Load(
        **{
            **dict.fromkeys(("arrived", "dropped", "started", "completed", "batches", "queued"), 0),
            "busy": 0.0,
            "forming": 0,
            "running": 0,
            **counts,
        }
    )


def test_rates_are_of_the_period_and_the_first_period_is_the_planned_one():
    seen = Observed(VIEW)
    first = seen.report(100.0, load(arrived=10, completed=6, dropped=2, batches=3, busy=0.3, queued=1, running=1))
    assert (first.stage, first.replica, first.at, first.span, first.batch) == ("s", 3, 100.0, 0.5, 4)
    assert (first.arrival_rate, first.completion_rate, first.drop_rate) == (20.0, 12.0, 0.2)
    assert (first.recent_batch, first.recent_duration, first.backlog) == (2.0, pytest.approx(0.1), 2)
    second = seen.report(102.0, load(arrived=14, completed=6, dropped=2, batches=3, busy=0.3), hbf=True)
    assert (second.span, second.arrival_rate, second.completion_rate, second.drop_rate) == (2.0, 2.0, 0.0, 0.0)
    assert (second.recent_batch, second.hbf) == (0.0, True)


def test_delays_go_into_the_window_and_waits_are_kept():
    seen = Observed(VIEW, samples=6)  # of the stage; two of its four workers are here
    seen.delays += [0.1, 0.3]
    seen.waits += [1.0, 2.0]
    first = seen.report(1.0, load())
    assert (first.queueing, first.entered) == (pytest.approx(0.2), 2.0)
    assert (list(first.waits), first.waits_seen) == ([1.0, 2.0], 2)
    seen.waits += [3.0, 4.0]
    second = seen.report(2.0, load())
    assert (second.queueing, second.entered) == (pytest.approx(0.2), pytest.approx(1.6))
    assert sorted(second.waits) == [2.0, 3.0, 4.0]
    assert list(first.waits) == [1.0, 2.0]  # what was told stays as it was told


@given(st.lists(st.lists(st.integers(), max_size=12), max_size=12))
def test_the_newest_waits_are_kept_and_no_more(periods):
    seen, all_waits = Observed(VIEW, samples=10), []
    for now, waits in enumerate(periods, start=1):
        seen.waits += [float(each) for each in waits]
        all_waits += [float(each) for each in waits]
        state = seen.report(float(now), load())
        assert sorted(state.waits) == sorted(all_waits[-5:])


def test_the_longest_is_that_of_the_window():
    seen, longest = Observed(VIEW), []
    for now, value in enumerate([0.5, 0.2, 0.0, 0.1, 0.1, 0.1, 0.1], start=1):
        seen.longest = value
        longest.append(seen.report(float(now), load()).longest)
    assert longest == [0.5, 0.5, 0.5, 0.5, 0.5, 0.2, 0.1]


def test_a_window_of_one_period_forgets_the_one_before():
    seen = Observed(VIEW, window=0.5)
    seen.delays += [4.0]
    assert seen.report(1.0, load()).queueing == 4.0
    assert seen.report(1.5, load()).queueing == 0.0


def test_the_window_follows_the_workload_where_it_may():
    seen, arrived = Observed(VIEW, window=None), 0
    for second in range(1, 100):
        arrived += 400 if second % 4 == 0 else 0
        seen.delays.append(1.0)
        state = seen.report(float(second), load(arrived=arrived))
    assert state.entered == pytest.approx(1.5)  # two seconds: 1 + 1/2
