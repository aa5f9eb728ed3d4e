"""A schedule is the same for a seed, and has as much of each kind as it was asked for."""

from dataclasses import replace
from functools import cache

import pytest

from spillway.agents.chaos.schedule import STALL_SECONDS, STALLS, Event, Kind, Load, Often, schedule

SECONDS = 1_000.0
ALL = Load(Often(2, 0.3), Often(20), Often(10, 1), Often(50, 1), 4, multitenancy=True)


def of(load, slots=6, seed=0):
    return schedule(load, slots, SECONDS, seed)


@cache
def whole():
    return of(ALL)


def test_a_seed_gives_one_schedule_and_another_seed_another():
    assert of(ALL) == whole() == sorted(whole())
    assert whole() != of(ALL, seed=1)
    assert {event.slot for event in whole()} == set(range(6))
    assert all(0 <= event.at < SECONDS and event.seconds >= 0 for event in whole())


@pytest.mark.parametrize("name", ["slow", "kill", "hog", "delay", "shuffles", "multitenancy"])
def test_a_kind_of_load_is_the_same_whatever_else_there_is(name):
    alone = Load(**{name: getattr(ALL, name)})
    others = replace(ALL, **{name: getattr(Load(), name)})
    assert of(alone)
    assert sorted([*of(alone), *of(others)]) == whole()


def test_each_is_as_often_and_as_long_as_it_says():
    pulses = of(Load(slow=Often(0.5, 0.3)))
    assert len(pulses) == pytest.approx(SECONDS / 0.5, rel=0.1)
    assert mean(pulses) == pytest.approx(0.3, rel=0.05)
    assert all(0.15 <= event.seconds <= 0.45 for event in pulses)
    assert {event.kind for event in of(Load(kill=Often(20)))} == {Kind.KILL}
    stood = sum(event.seconds for event in of(Load(delay=Often(20, 2))))
    assert stood == pytest.approx(SECONDS / 20 * 2 / 2, rel=0.3)  # half of the time


def test_shuffles_keep_as_many_pairs_at_it_as_there_are():
    events = of(Load(shuffles=3))
    assert len(events) == pytest.approx(3 * 2 * STALLS * SECONDS, rel=0.1)
    assert mean(events) == pytest.approx(STALL_SECONDS, rel=0.1)
    assert of(Load(shuffles=3), slots=1) == []  # nobody to shuffle with


def test_tenants_are_on_every_ninth_worker():
    assert {event.slot for event in of(Load(multitenancy=True), slots=20)} == {0, 9, 18}


def mean(events: list[Event]) -> float:
    return sum(event.seconds for event in events) / len(events)
