"""The load factor, its band, and the order that follows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.core.policies.adaptive import Pressure, high_first
from agents.core.policy import StageState


@pytest.mark.parametrize(
    ("high", "load", "band", "then"),
    [
        (False, 0.5, 0.1, False),
        (False, 1.0, 0.0, False),
        (False, 1.05, 0.1, False),
        (False, 1.1, 0.1, False),
        (False, 1.11, 0.1, True),
        (True, 1.11, 0.1, True),
        (True, 1.0, 0.1, True),
        (True, 0.95, 0.1, True),
        (True, 0.9, 0.1, True),
        (True, 0.89, 0.1, False),
        (True, 1.0, 0.0, True),
        (True, 0.999, 0.0, False),
        (False, 1.001, 0.0, True),
        (True, 0.0, 1.5, True),
        (False, 9.0, 9.0, False),
    ],
)
def test_the_table(high, load, band, then):
    assert high_first(high, load, band) is then


@given(st.booleans(), st.floats(0, 5), st.floats(0, 2))
def test_a_switch_stays_while_the_load_stays(high, load, band):
    then = high_first(high, load, band)
    assert high_first(then, load, band) is then


def hear(pressure, now, *rates, high=(), capacity=10.0, **more):
    hbf = high or (False,) * len(rates)
    states = [StageState("s", n, now, arrival_rate=r, hbf=h) for n, (r, h) in enumerate(zip(rates, hbf, strict=True))]
    return pressure.hear(now, states, capacity, **more)


def test_the_load_is_that_of_all_replicas_over_the_whole_stages_capacity():
    pressure = Pressure()
    assert not hear(pressure, 1.0, 3.0, 4.0)
    assert pressure.load == pytest.approx(0.7)
    assert pressure.band == 0.0
    assert hear(pressure, 2.0, 11.0, 12.0)
    # T_s = (7 + 23) / 2 = 15: |23 - 15| / (7 + 23)
    assert pressure.band == pytest.approx(8 / 30)
    assert pressure.load == pytest.approx(2.3)


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


def test_without_a_band_it_switches_at_one():
    pressure = Pressure()
    assert hear(pressure, 1.0, 10.1, steady=False)
    assert not hear(pressure, 2.0, 9.9, steady=False)


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
