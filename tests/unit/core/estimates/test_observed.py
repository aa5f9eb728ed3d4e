"""What a queue says of itself once a period."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.core.estimates.observed import Observed
from spillway.agents.core.estimates.window import RecentMean, WorkloadVariation, guided
from spillway.agents.core.policies.adaptive import Pressure, high_first
from spillway.agents.core.policy import Load, StageFacts, StageState, StageView

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


# The linearly weighted window, by hand.


def closed(length, buckets):
    recent = RecentMean(length)
    for at, total, count in buckets:
        recent.close(at, total, count)
    return recent


def test_five_seconds_weigh_5_4_3_2_1_the_newest_most():
    recent = closed(5.0, [(at, at * 10.0, 10) for at in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)])
    # Means 2 to 6 (that of 1 is out of the window): (1*2 + 2*3 + 3*4 + 4*5 + 5*6) / 15
    mean, weight = recent.mean(6.0)
    assert mean == pytest.approx(70 / 15)
    assert weight == pytest.approx(30.0)


def test_requests_count_not_buckets():
    mean, _ = closed(5.0, [(1.0, 9.0, 9), (2.0, 50.0, 10)]).mean(2.0)
    assert mean == pytest.approx((0.8 * 9 + 50) / (0.8 * 9 + 10))


def test_any_period_will_do():
    often = closed(5.0, [(0.1 * tick, 2.0, 1) for tick in range(1, 100)])
    seldom = closed(5.0, [(20.0, 6.0, 2), (40.0, 8.0, 2)])
    assert often.mean(9.9) == (pytest.approx(2.0), pytest.approx(25.5, rel=0.01))
    assert seldom.mean(40.0) == (4.0, 2.0)


def test_nothing_seen_is_no_delay():
    assert closed(5.0, [(1.0, 3.0, 3), (7.0, 0.0, 0)]).mean(7.0) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("variation", "length"), [(None, 5.0), (0.0, 6.0), (0.49, 6.0), (0.5, 4.0), (0.99, 4.0), (1.0, 2.0), (3.0, 2.0)]
)
def test_the_guideline_of_the_paper(variation, length):
    assert guided(variation) == length


def test_variation_is_that_of_the_rate_and_not_of_poisson_arrivals():
    steady, bursty, unknown = WorkloadVariation(), WorkloadVariation(), WorkloadVariation()
    for second in range(60):
        steady.see(10 + (3 if second % 2 else -3), 1.0)  # the spread of Poisson arrivals, 3.0 around 10
        for _ in range(10):
            bursty.see(40 if second % 4 == 0 else 0, 0.1)
    unknown.see(10, 1.0)
    assert steady.coefficient == 0.0
    assert bursty.coefficient == pytest.approx(3**0.5, rel=0.01)
    assert unknown.coefficient is None


# The load factor, its band, and the order that follows.


@pytest.mark.parametrize(
    ("high", "band", "off", "on"),  # the loads that give either order
    [
        (False, 0.1, (0.5, 1.05, 1.1), (1.11,)),
        (False, 0.0, (1.0,), (1.001,)),
        (False, 9.0, (9.0,), ()),
        (True, 0.1, (0.89,), (0.9, 0.95, 1.0, 1.11)),
        (True, 0.0, (0.999,), (1.0,)),
        (True, 1.5, (), (0.0,)),
    ],
)
def test_the_table(high, band, off, on):
    assert [high_first(high, load, band) for load in (*off, *on)] == [False] * len(off) + [True] * len(on)


@given(st.booleans(), st.floats(0, 5), st.floats(0, 2))
def test_a_switch_stays_while_the_load_stays(high, load, band):
    then = high_first(high, load, band)
    assert high_first(then, load, band) is then


def hear(pressure, now, *rates, high=(), capacity=10.0):
    hbf = high or (False,) * len(rates)
    states = [StageState("s", n, now, arrival_rate=r, hbf=h) for n, (r, h) in enumerate(zip(rates, hbf, strict=True))]
    return pressure.hear(now, states, capacity)


def test_the_smoothed_rate_is_of_five_seconds_and_the_band_of_thirty():
    pressure = Pressure()
    for second in range(40):
        hear(pressure, float(second), 20.0 if second == 0 else 10.0)
    assert pressure.band == 0.0  # the burst was 39 s ago
    hear(pressure, 40.0, 15.0)
    assert pressure.band == pytest.approx((15 - 11) / (29 * 10 + 15))


def test_with_a_short_period_the_load_is_still_of_a_second():
    pressure = Pressure()
    for tick in range(30):
        hear(pressure, tick / 10, 90.0 if tick % 10 == 0 else 0.0)
    assert pressure.load == pytest.approx(0.9)


def test_a_new_replica_takes_the_majoritys_order_while_the_load_decides_nothing():
    assert hear(Pressure(), 1.0, 5.0, 5.0, 0.0, high=(True, True, False))
    assert not hear(Pressure(), 1.0, 5.0, 5.0, 0.0, high=(True, False, False))


def test_the_same_message_counts_once():
    pressure = Pressure()
    states = [StageState("s", 0, 1.0, arrival_rate=20.0)]
    assert pressure.hear(1.0, states, 10.0)
    pressure.load = -1.0
    assert pressure.hear(1.0, states, 10.0)
    assert pressure.load == -1.0


def test_nothing_known_of_the_capacity_is_no_load():
    pressure = Pressure()
    assert not hear(pressure, 1.0, 5.0, capacity=0.0)
    assert pressure.load == 0.0
