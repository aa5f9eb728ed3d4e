"""The runs of `python -m benchmarks hams` that take hours are kept one by one, and compared repeat by repeat."""

from dataclasses import replace

import pytest

from benchmarks.hams import latency
from benchmarks.hams.cells import Measured
from benchmarks.hams.progress import Progress
from benchmarks.hams.setting import Setting
from benchmarks.output import read_section
from lineage.errors import BrokerError
from producers.connection import ClientSettings

MODES = ("none", "nspb", "remus")


@pytest.fixture
def setting(tmp_path, monkeypatch):
    monkeypatch.setattr(latency, "warm", lambda _cluster: None)
    progress = Progress(tmp_path, go_on=True)
    return Setting(
        ClientSettings(bootstrap="nowhere:1"), tmp_path, {}, lambda _text: None, ("bandit",), MODES, (8, 64), 2, 12,
        1.0, progress,
    )  # fmt: skip


class Runs:
    """Runs that are not made: each takes longer than the one before, and one of them may fail."""

    def __init__(self, fails_at=0, stolen=()):
        self.cells = []
        self.intervals = []
        self.fails_at = fails_at
        self.stolen = list(stolen)

    def __call__(self, cell, *_args, interval, **_rest):
        self.cells.append((cell.mode, cell.batch))
        self.intervals.append(interval)
        if len(self.cells) == self.fails_at:
            raise BrokerError("gone")
        base = 100.0 if cell.mode == "none" else 150.0 if cell.mode == "nspb" else 200.0
        return Measured(base, 2 * base, 1e5 / base, interval or 0.5, stolen=self.stolen.pop(0) if self.stolen else 0.0)


def test_all_modes_of_a_size_stand_together_and_share_the_bare_ones_interval(setting, monkeypatch):
    runs = Runs()
    monkeypatch.setattr(latency, "measure", runs)
    found = latency.measure_sizes(setting)
    turns = (MODES, ("none", "remus", "nspb"))
    assert runs.cells == [("nspb", 8)] + [(mode, size) for modes in turns for size in (8, 64) for mode in modes]
    assert runs.intervals == [None, *[None, 0.5, 0.5] * 4]
    assert len(found["rows"]) == 12


def test_a_run_that_its_host_has_disturbed_is_made_again(setting, monkeypatch):
    """At most as often as is said, and then the one that was disturbed least counts."""
    runs = Runs(stolen=[0.0, 0.2, 0.05, 0.4, 0.3, 0.5])  # the first is made for nothing
    monkeypatch.setattr(latency, "measure", runs)
    rows = latency.measure_sizes(replace(setting, again=2, sizes=(8,), repeats=1))["rows"]
    assert runs.cells == [(mode, 8) for mode in ("nspb", "none", "none", "nspb", "nspb", "nspb", "remus")]
    assert [row["stolen"] for row in rows] == [0.05, 0.3, 0.0]


def test_what_was_measured_before_a_failure_is_kept_and_gone_on_from(setting, monkeypatch, tmp_path):
    failing = Runs(fails_at=7)
    monkeypatch.setattr(latency, "measure", failing)
    with pytest.raises(BrokerError):
        latency.measure_sizes(setting)
    assert len(read_section(tmp_path, "sizes")["rows"]) == 5
    runs = Runs()
    monkeypatch.setattr(latency, "measure", runs)
    found = latency.measure_sizes(setting)
    assert runs.cells[:2] == [("nspb", 64), ("remus", 64)]
    assert runs.intervals[1] == 0.5  # the bare run's that was kept
    assert len(found["rows"]) == len(runs.cells) - 1 + 5 == 12


def test_one_run_is_made_for_nothing_and_not_where_nothing_is_missing(setting, monkeypatch):
    runs = Runs()
    monkeypatch.setattr(latency, "measure", runs)
    found = latency.measure_sizes(setting)
    assert len(runs.cells) == len(found["rows"]) + 1
    again = Runs()
    monkeypatch.setattr(latency, "measure", again)
    latency.measure_sizes(setting)
    assert again.cells == []


def test_without_going_on_everything_is_measured_anew(setting, monkeypatch, tmp_path):
    monkeypatch.setattr(latency, "measure", Runs())
    latency.measure_latency(setting)
    again = Runs()
    monkeypatch.setattr(latency, "measure", again)
    latency.measure_latency(replace(setting, progress=Progress(tmp_path, go_on=False)))
    assert len(again.cells) == 2 * len(MODES) + 1


def test_modes_are_told_over_bare_and_over_nspb_repeat_by_repeat(setting, monkeypatch):
    monkeypatch.setattr(latency, "measure", Runs())
    result = latency.measure_latency(setting)
    result["rows"] = [row for row in result["rows"] if (row["mode"], row["repeat"]) != ("none", 1)]
    over_bare, through, over_nspb, together = latency.tables(result)
    assert over_bare.rows == [["bandit", "64", "100.0", "+50.0 %", "+100.0 %"]]
    assert through.rows[0][3] == "-33.3 %"
    assert over_nspb.rows == [["bandit", "64", "150.0 (150.0 to 150.0)", "-33.3 %", "+33.3 % (+33.3 % to +33.3 %)"]]
    assert together.rows == [
        ["none", "-", "-33.3 %", "0 of 1"],
        ["nspb", "+50.0 %", "-", "-"],
        ["remus", "+100.0 %", "+33.3 %", "2 of 2"],
    ]


def test_all_runs_together_are_told_by_their_geometric_mean():
    about = {"service": "bandit", "batch": 8, "emulated": False, "throughput": 1.0, "interval": 0.5}
    latencies = {(0, "none"): 50.0, (0, "nspb"): 100.0, (1, "none"): 100.0, (1, "nspb"): 50.0, (1, "s1"): 45.0}
    rows = [about | {"repeat": repeat, "mode": mode, "p50": p50} for (repeat, mode), p50 in latencies.items()]
    together = latency.tables({"rows": rows})[-1]
    assert together.rows == [
        ["none", "-", "+0.0 %", "1 of 2"],
        ["nspb", "+0.0 %", "-", "-"],
        ["s1", "-55.0 %", "-10.0 %", "0 of 1"],
    ]


def test_the_tables_are_ordered_by_service_and_size_however_the_runs_were_made(setting, monkeypatch):
    monkeypatch.setattr(latency, "measure", Runs())
    turned = replace(setting, services=("bandit", "sp", "sa"), sizes=(64, 8), repeats=1)
    made = latency.tables(latency.measure_sizes(turned))
    order = [("SA", "8"), ("SA", "64"), ("SP", "8"), ("SP", "64"), ("bandit", "8"), ("bandit", "64")]
    assert [tuple(row[:2]) for row in made[0].rows] == order
    assert [row[0] for row in made[-1].rows] == ["SA", "SP"], "the paper's line of a service stands there once"
