import asyncio

import pytest

from spillway.agents.live import clock as module
from spillway.agents.live.clock import Clock
from spillway.agents.run.alarm import Alarm
from tests.unit.live.stateful.shard_doubles import Clock as Timers


@pytest.fixture
def times(monkeypatch):
    now = {"wall": 1000.0, "mono": 50.0}
    monkeypatch.setattr(module.time, "time", lambda: now["wall"])
    monkeypatch.setattr(module.time, "monotonic", lambda: now["mono"])
    return now


@pytest.mark.parametrize(("passes", "wall_moves", "says"), [(5, -100, 1005.0), (1, 101, 1101.0)])
def test_a_wall_clock_that_was_set_forward_is_followed_and_one_that_was_set_back_ignored(
    times, passes, wall_moves, says
):
    clock = Clock()
    times["mono"] += passes
    times["wall"] += wall_moves
    assert clock() == pytest.approx(says, abs=0.001)


def test_following_never_goes_back_faster_than_time_passes(times):
    clock = Clock()
    before = clock()
    times["mono"] += 0.5
    times["wall"] -= 100
    assert before < clock() < 1000.5


def test_a_clock_goes_on_while_the_host_is_suspended(times, monkeypatch):
    monkeypatch.setattr(module.time, "CLOCK_BOOTTIME", 7, raising=False)
    monkeypatch.setattr(module.time, "clock_gettime", lambda which: {7: 1234.0}[which])
    assert module.since_boot() == 1234.0
    monkeypatch.delattr(module.time, "CLOCK_BOOTTIME")
    assert module.since_boot() == 50.0


# A driver's one timer: the earliest moment that was asked for counts; the next one is asked for when it has rung.


@pytest.fixture
def timers(monkeypatch):
    made = Timers()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: made)
    return made


def alarm(timers):
    rung = []
    return Alarm(lambda: rung.append(timers.now)), rung


def test_the_earliest_moment_counts_and_it_rings_once(timers):
    made, rung = alarm(timers)
    for seconds in (3.0, 1.0, 2.0):
        made.within(seconds)
    for seconds in (0.5, 0.5, 1.0, 1.0):
        timers.advance(seconds)
    assert rung == [101.0]


def test_it_is_set_anew_once_it_has_rung_or_was_cancelled(timers):
    made, rung = alarm(timers)
    made.within(-1.0)  # what is due already
    timers.advance(0.0)
    made.within(1.0)
    made.cancel()
    timers.advance(2.0)
    assert rung == [100.0]
    made.within(1.0)
    timers.advance(1.0)
    assert rung == [100.0, 103.0]
