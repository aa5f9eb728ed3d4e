"""A variant's life is its table; marks take two reports; a stale profile is no interference."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.infaas.family import of
from spillway.topology.variants.states import LIFE, SLACK, STALE, Event, Life, State, Told

TRT8 = of("ResNet50")[3]
FINE = Told(ready=1, alive=1, load=100, p50=TRT8.duration(8), batch=8)
SLOW = Told(ready=1, alive=1, load=100, p50=1.3 * TRT8.duration(8), batch=8)
FULL = Told(ready=1, alive=1, load=800 / SLACK, p50=TRT8.duration(8), batch=8)


def active():
    life = Life(TRT8)
    life.on(0.0, Event.ORDERED)
    life.report(1.0, FINE)
    assert life.state is State.ACTIVE
    return life


def test_every_state_is_reached_and_left():
    assert {state for state, _ in LIFE} == set(LIFE.values()) == set(State)
    assert {event for _, event in LIFE} == set(Event)


def test_what_is_not_in_the_table_raises():
    impossible = [(state, event) for state in State for event in Event if (state, event) not in LIFE]
    assert impossible
    for state, event in impossible:
        with pytest.raises(ValueError, match=f"that is {state} cannot be {event}"):
            Life(TRT8, state=state).on(0.0, event)


def test_a_worker_that_is_killed_in_each_state_leads_where_the_table_says():
    loading = Life(TRT8)
    loading.on(0.0, Event.ORDERED)
    loading.report(1.0, Told(alive=1, died=1))
    assert (loading.state, loading.failures, loading.retry) == (State.FAILED, 1, 1.0 + TRT8.load)
    some = active()
    some.report(2.0, Told(ready=1, alive=2, died=1))
    assert some.state is State.ACTIVE
    some.report(3.0, Told(ready=0, alive=1, died=1))
    assert some.state is State.LOADING
    some.report(4.0, FINE)
    assert some.state is State.ACTIVE
    draining = active()
    draining.on(2.0, Event.DROPPED)
    draining.report(3.0, Told(alive=1, died=1))
    assert draining.state is State.DRAINING
    draining.report(4.0, Told(alive=0))
    assert draining.state is State.INACTIVE
    loading.report(5.0, FINE)  # too late
    assert loading.state is State.FAILED


def test_each_failure_in_a_row_waits_longer_than_the_one_before():
    life, waits = Life(TRT8), []
    for n in range(7):
        life.on(100.0 * n, Event.ORDERED)
        life.report(100.0 * n, Told(alive=1, died=1))
        waits.append(life.retry - 100.0 * n)
    assert waits[:3] == [pytest.approx(TRT8.load * each) for each in (1, 2, 4)]
    assert waits[-1] == 60
    life.on(1000.0, Event.ORDERED)
    life.report(1001.0, FINE)
    assert life.failures == 0


@pytest.mark.parametrize(("told", "overloaded", "interfered"), [(SLOW, False, True), (FULL, True, False)])
def test_a_mark_comes_and_goes_with_the_second_report(told, overloaded, interfered):
    life = active()
    life.report(2.0, told)
    assert not life.marked
    life.report(3.0, FINE)
    life.report(4.0, told)
    assert not life.marked
    life.report(5.0, told)
    assert (life.overloaded, life.interfered) == (overloaded, interfered)
    life.report(6.0, FINE)
    assert life.marked
    life.report(7.0, FINE)
    assert not life.marked


def test_a_variant_that_is_overloaded_is_slow_for_that_and_not_interfered():
    life = active()
    for n in range(2 * STALE):
        life.report(2.0 + n, Told(ready=1, alive=1, load=900, p50=1.5 * TRT8.duration(8), batch=8))
    assert life.overloaded
    assert not life.interfered
    assert life.slower == 1.0


def test_a_profile_that_stays_wrong_is_corrected_until_it_is_right_again():
    life = active()
    for n in range(STALE - 1):
        life.report(2.0 + n, SLOW)
    assert life.interfered
    assert life.slower == 1.0
    life.report(20.0, SLOW)
    assert life.slower == pytest.approx(1.3)
    assert not life.interfered
    assert (life.rate, life.latency) == (pytest.approx(800 / 1.3), pytest.approx(0.005 + 0.013))
    for n in range(5):
        life.report(30.0 + n, SLOW)
    assert not life.interfered
    life.report(40.0, FINE)
    assert life.slower > 1
    life.report(41.0, FINE)
    assert life.slower == 1.0


def test_marks_end_with_the_life_that_had_them():
    life = active()
    life.report(2.0, FULL)
    life.report(3.0, FULL)
    assert life.overloaded
    life.on(4.0, Event.DROPPED)
    life.on(5.0, Event.ORDERED)
    life.report(6.0, FULL)
    assert not life.marked


reports = st.builds(
    Told,
    ready=st.integers(0, 3),
    alive=st.integers(3, 4) | st.just(0),
    died=st.integers(0, 2),
    load=st.floats(0, 2000),
    p50=st.none() | st.floats(0.001, 0.1),
    batch=st.integers(1, 8),
)


@given(st.lists(reports | st.sampled_from([Event.ORDERED, Event.DROPPED]), max_size=40))
def test_whatever_is_told_the_table_knows_what_follows(steps):
    life = Life(TRT8)
    for now, step in enumerate(steps):
        if isinstance(step, Told):
            life.report(float(now), step)  # never raises
        elif (life.state, step) in LIFE:
            life.on(float(now), step)
        assert life.state is State.ACTIVE or not life.marked
        assert not (life.overloaded and life.interfered)
        assert life.slower >= 1
