"""Figures that were made while a machine's host had the processors say so."""

from types import SimpleNamespace

from benchmarks import stolen
from benchmarks.output import Table
from benchmarks.stolen import StolenMeter, with_note

TABLES = [Table("one", ("a",), [["1"]], ("Said before.",)), Table("two", ("a",), [["1"]])]


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


def test_runs_that_lost_much_are_called_incomparable():
    first, second = with_note(TABLES, {"rows": [{"stolen": 0.0}, {"stolen": 0.02}, {"stolen": 0.5}]})
    assert first.notes == (
        "Said before.",
        (
            "The machine's host gave 2% of its processors to others, 50% in the worst run; "
            "runs that lost so much cannot be compared with each other."
        ),
    )
    assert second == TABLES[1]
