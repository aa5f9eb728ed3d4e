"""`python -m benchmarks hams`: what is compared with what, what is done to services, and the tables of it."""

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from benchmarks import standby
from benchmarks.hams import false_failovers, hold, latency, recovery, standbys
from benchmarks.hams.blows import AHEAD, SELDOM, blows
from benchmarks.hams.cells import Cell, Measured, throughput_of, variant
from benchmarks.hams.progress import Progress
from benchmarks.hams.services import EACH_BATCH, MODES, SERVICES, label, replication
from benchmarks.hams.setting import Setting
from benchmarks.hams.struck import Recovered, written
from benchmarks.output import read_section
from lineage.errors import BrokerError
from lineage.metric_names import STATE_HOLD_SECONDS
from producers.connection import ClientSettings
from topology.load import load

COMPARED = ("none", "nspb", "remus")


@pytest.fixture
def setting(tmp_path, monkeypatch):
    monkeypatch.setattr(latency, "warm", lambda _cluster: None)
    progress = Progress(tmp_path, go_on=True)
    return Setting(
        ClientSettings(bootstrap="nowhere:1"), tmp_path, {}, lambda _text: None, ("bandit",), COMPARED, (8, 64), 2, 12,
        1.0, progress,
    )  # fmt: skip


class Runs:
    """Runs that are not made; one of them may fail."""

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
    turns = (COMPARED, ("none", "remus", "nspb"))
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


def test_batches_that_end_at_once_tell_no_throughput():
    assert throughput_of(np.array([1.0, 1.0, 3.0, 3.0]), 2) == 1.0
    assert throughput_of(np.array([1.0, 1.0, 1.0, 1.0]), 2) == 0.0
    about = {"service": "bandit", "batch": 8, "emulated": False, "repeat": 0, "p50": 1.0}
    rows = [about | {"mode": "none", "throughput": 0.0}, about | {"mode": "nspb", "throughput": 5.0}]
    assert latency.tables({"rows": rows})[1].rows == [["bandit", "8", "not measured", "not measured"]]


def found(names, modes=MODES):
    return {(blow.name, blow.mode): blow for blow in blows(names, modes)}


def test_each_service_loses_a_primary_in_each_mode_of_the_paper():
    made = found(["sa"])
    assert [made["primary", mode].paper_ms for mode in ("nspb", "remus", "lineage-stash")] == [116.12, 109.23, None]
    (late,) = (blow for blow in made.values() if blow.ahead)
    assert (late.mode, late.ahead, late.paper_ms) == (SELDOM, AHEAD, 124_430)
    assert {blow.service for blow in made.values()} == {"sa"}


class Struck:
    """Blows that are not dealt."""

    def __init__(self):
        self.dealt = []

    @contextmanager
    def __call__(self, _setting, blow):
        self.dealt.append((blow.name, blow.rate))
        yield self

    def once(self):
        return Recovered(0.05, 0.1, 0)


def test_what_was_measured_is_kept_row_by_row_and_not_measured_again(setting, monkeypatch):
    struck = Struck()
    monkeypatch.setattr(recovery, "under_load", struck)
    setting = replace(setting, modes=("none", "nspb"))
    recovery.measure_recovery(setting)
    assert [row["first_message_ms"] for row in setting.progress.rows("recovery")] == [[50.0] * 2] * 2
    recovery.measure_recovery(replace(setting, rate=20.0))
    recovery.measure_recovery(setting)
    names = ["primary", "primary, by silence alone"]
    assert struck.dealt == [*((name, 50.0) for name in names), *((name, 20.0) for name in names)]
    assert len(setting.progress.rows("recovery")) == 4


def test_the_pipeline_of_a_blow_has_its_standbys_and_no_others_and_what_can_be_held(tmp_path):
    made = found(["ap", "fd"])
    cell = Cell(SERVICES["ap"], "nspb", 64)
    given = yaml.safe_load(variant(cell, tmp_path, 1).path.read_text())
    for name, count in (("Fig. 6", 0), ("stateless, a standby", 1)):
        file = tmp_path / "blow.yaml"
        file.write_text(yaml.safe_dump(written(made[name, "nspb"], given, Path("hold"))))
        stages = {stage.name: stage for stage in load(file).spec.stages}
        assert stages["detect"].standby == count
        assert [name for name, stage in stages.items() if stage.model.endswith(":held")] == ["track"] * (1 - count)
    of_held = written(made["Fig. 6", "nspb"], given, Path("hold"))["stages"][1]["arguments"]
    assert of_held == {"model": "benchmarks.hams.pipelines.vision:track", "file": "hold", "arguments": {}}


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_is_what_its_stages_say(tmp_path, mode):
    stages = variant(Cell(SERVICES["bandit"], mode, 8), tmp_path, 1).spec.stages
    assert stages[0].replication == ("lineage-stash" if mode == EACH_BATCH else mode)
    assert stages[0].checkpoint_every == (1 if mode == EACH_BATCH else 150)


def test_the_table_tells_rates_and_what_was_computed_again():
    row = {"service": "ol-small", "blow": "primary", "mode": SELDOM, "rate": 5.0, "paper_ms": 21_090}
    row |= {"first_message_ms": [9.0, 11.0, 10.0], "first_outcome_ms": [30.0], "computed_again": [3_215, 3_300]}
    (table,) = recovery.tables({"rows": [row, row | {"mode": "nspb", "paper_ms": None, "computed_again": [0]}]})
    assert table.rows[0] == ["OL(M)", "primary", "lineage-stash", "5", "10 (9 to 11)", "30", "21090"]
    assert (table.rows[1][2], table.rows[1][-1]) == ("nspb", "-")
    assert "150 batches of 64: 3,215 to 3,300 requests" in table.notes[-1]
    assert replication(SELDOM) == {"replication": "lineage-stash", "checkpoint_every": 9_600}
    assert label(EACH_BATCH) == "lineage-stash, a copy at every batch"


def test_the_death_of_a_stateless_replica_is_told_with_a_standby_and_without():
    kills = [standby.Kill(0.2, 0.3), standby.Kill(0.1, 0.5), standby.Kill(0.4, 0.3)]
    (table,) = standbys.tables({"rate": 50.0, "rows": [standby.row(1, kills), standby.row(0, kills[:1])]})
    assert table.rows[0] == ["1", "3", "200 (100 to 400)", "500", "320"]
    assert table.rows[1] == ["0", "1", "200", "300", "-"]


def test_the_other_sections_make_tables_of_their_results():
    figure = {STATE_HOLD_SECONDS: {"count": 9, "mean": 0.01, "p50": 0.01, "p99": 0.02}}
    served = {"service": "bandit", "mode": "nspb", "repeat": 0, "latency_ms": {"p50": 9.0, "p99": 10.0}}
    held = hold.tables({"rate": 100.0, "seconds": 1.0, "rows": [served | {"figures": figure}]})
    assert "| 10.00 | 20.00 |" in held[0].markdown()
    quiet = {"service": "bandit", "leases": [1.0], "minutes": 2.0, "seconds": 100.0, "answered": 500, "others": 0}
    found = {"in_flight": 9, "rows": [quiet | {"claims": [], "failovers": 0}]}
    assert "| bandit | 1 s | 2 | 5 | 0 | 0 |" in false_failovers.tables(found)[0].markdown()
