"""`python -m benchmarks hams`: what is compared with what, what is done to services, and the tables of it."""

import numpy as np
import pytest

from benchmarks.hams import latency, recovery, standbys
from benchmarks.hams.blows import SELDOM
from benchmarks.hams.cells import Cell, Measured, throughput_of, variant
from benchmarks.hams.progress import Progress
from benchmarks.hams.services import EACH_BATCH, MODES, SERVICES, label, replication
from benchmarks.hams.setting import Setting
from spillway.lineage.errors import BrokerError
from spillway.producers.connection import ClientSettings

COMPARED = ("none", "nspb", "remus")


@pytest.fixture
def setting(tmp_path, monkeypatch):
    monkeypatch.setattr(latency, "warm", lambda _cluster: None)
    progress = Progress(tmp_path, go_on=True)
    return Setting(
        ClientSettings(bootstrap="nowhere:1"), tmp_path, lambda _text: None, ("bandit",), COMPARED, (8, 64), 2, 12,
        1.0, progress,
    )  # fmt: skip


class Runs:
    """Runs that are not made; one of them may fail."""

    def __init__(self, fails_at=0, stolen=()):
        self.cells = []
        self.intervals = []
        self.fails_at = fails_at
        self.stolen = list(stolen)

    def __call__(self, _setting, cell, interval):
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


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_is_what_its_stages_say(tmp_path, mode):
    stages = variant(Cell(SERVICES["bandit"], mode, 8), tmp_path, 1).spec.stages
    state = stages[0].required_state
    assert state.replication == ("lineage-stash" if mode == EACH_BATCH else mode)
    assert state.checkpoint_every == (1 if mode == EACH_BATCH else 150)


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
    kills = [standbys.Kill(0.2, 0.3), standbys.Kill(0.1, 0.5), standbys.Kill(0.4, 0.3)]
    (table,) = standbys.tables({"rate": 50.0, "rows": [standbys.row(1, kills), standbys.row(0, kills[:1])]})
    assert table.rows[0] == ["1", "3", "200 (100 to 400)", "500", "320"]
    assert table.rows[1] == ["0", "1", "200", "300", "-"]
