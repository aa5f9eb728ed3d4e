"""Figures that were made while a machine's host had the processors say so."""

from types import SimpleNamespace

from benchmarks import stolen
from benchmarks.stolen import StolenMeter


def times(monkeypatch, **given):
    class Times(SimpleNamespace):
        def __iter__(self):
            return iter(vars(self).values())

    monkeypatch.setattr(stolen.psutil, "cpu_times", lambda: Times(**given))


def test_what_is_stolen_is_a_share_of_all_time(monkeypatch):
    times(monkeypatch, user=100.0, idle=50.0, steal=10.0, guest=40.0)  # a guest's time is in the user's
    meter = StolenMeter()
    times(monkeypatch, user=160.0, idle=60.0, steal=40.0, guest=70.0)
    assert meter.share() == 0.3
