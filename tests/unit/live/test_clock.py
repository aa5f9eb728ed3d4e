import pytest

from agents.live import clock as module
from agents.live.clock import Clock


@pytest.fixture
def times(monkeypatch):
    now = {"wall": 1000.0, "mono": 50.0}
    monkeypatch.setattr(module.time, "time", lambda: now["wall"])
    monkeypatch.setattr(module.time, "monotonic", lambda: now["mono"])
    return now


def test_it_says_unix_time_and_ignores_a_wall_clock_set_back(times):
    clock = Clock()
    times["mono"] += 5
    times["wall"] -= 100
    assert clock() == pytest.approx(1005.0)


def test_following_never_goes_back_faster_than_time_passes(times):
    clock = Clock()
    before = clock()
    times["mono"] += 0.5
    times["wall"] -= 100
    clock.follow()
    assert before < clock() < 1000.5


def test_a_clock_that_was_set_forward_is_followed_at_once(times):
    clock = Clock()
    times["wall"] += 100
    clock.follow()
    assert clock() == pytest.approx(1100.0)


def test_a_clock_goes_on_while_the_host_is_suspended(times, monkeypatch):
    monkeypatch.setattr(module.time, "CLOCK_BOOTTIME", 7, raising=False)
    monkeypatch.setattr(module.time, "clock_gettime", lambda which: {7: 1234.0}[which])
    assert module.since_boot() == 1234.0
    monkeypatch.delattr(module.time, "CLOCK_BOOTTIME")
    assert module.since_boot() == 50.0
