import asyncio
from unittest.mock import Mock

import pytest

from spillway.agents.live import clock as module
from spillway.agents.live.clock import Clock
from spillway.agents.run.alarm import Alarm


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


class Timers:
    """What of an event loop an alarm takes; nothing waits."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        self.set = []
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: self)

    def time(self):
        return self.now

    def call_at(self, when, call):
        timer = Mock(when=lambda: when, call=call, cancel=lambda: self.set.remove(timer))
        self.set.append(timer)
        return timer

    def pass_until(self, now):
        self.now = now
        for timer in [timer for timer in self.set if timer.when() <= now]:
            self.set.remove(timer)
            timer.call()


def alarm(timers):
    rung = []
    return Alarm(lambda: rung.append(timers.now)), rung


def test_the_earliest_moment_counts_and_it_rings_once(monkeypatch):
    timers = Timers(monkeypatch)
    made, rung = alarm(timers)
    for seconds in (3.0, 1.0, 2.0):
        made.within(seconds)
    for now in (0.5, 1.0, 2.0, 3.0):
        timers.pass_until(now)
    assert rung == [1.0]


def test_it_is_set_anew_once_it_has_rung_or_was_cancelled(monkeypatch):
    timers = Timers(monkeypatch)
    made, rung = alarm(timers)
    made.within(-1.0)  # what is due already
    timers.pass_until(0.0)
    made.within(1.0)
    made.cancel()
    timers.pass_until(2.0)
    assert rung == [0.0]
    made.within(1.0)
    timers.pass_until(3.0)
    assert rung == [0.0, 3.0]
