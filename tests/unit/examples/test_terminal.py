"""How a demonstration ends, and that it says when the machine was busy."""

import time

import pytest

from examples import terminal
from examples.terminal import Wakeups, shown


def measured(wakeups, count=5):
    """Wait until so many wakeups were measured."""
    until = time.monotonic() + 30
    while len(wakeups._late) < count:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_wakeups_are_measured_for_as_long_as_it_runs():
    with Wakeups() as wakeups:
        measured(wakeups)
    assert not wakeups._thread.is_alive()
    assert wakeups.late >= 0.0


def test_nine_of_ten_wakeups_count():
    wakeups = Wakeups()
    assert wakeups.late == 0.0
    wakeups._late = [0.5] + [0.001] * 18 + [0.2]
    assert wakeups.late == 0.2
    wakeups._late = [0.5] + [0.001] * 19
    assert wakeups.late == 0.001


@pytest.mark.parametrize(("most", "said"), [(-1.0, True), (float("inf"), False)])
def test_a_busy_machine_is_named_and_the_demonstration_still_ends_well(monkeypatch, capsys, most, said):
    monkeypatch.setattr(terminal, "BUSY", most)
    assert shown("title", lambda _console, _stack: True) == 0
    assert ("machine is busy" in capsys.readouterr().out) is said


def test_what_is_not_as_promised_is_no_success():
    assert shown("title", lambda _console, _stack: False) == 1
