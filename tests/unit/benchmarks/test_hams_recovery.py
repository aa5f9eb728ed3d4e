"""What is done to the services to see how soon they go on, and the tables of it."""

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from benchmarks import standby
from benchmarks.hams import recovery, standbys
from benchmarks.hams.blows import AHEAD, SELDOM, blows
from benchmarks.hams.cells import Cell, variant
from benchmarks.hams.command import SECTIONS
from benchmarks.hams.progress import Progress
from benchmarks.hams.recovery import tables
from benchmarks.hams.services import EACH_BATCH, MODES, SERVICES, label, replication
from benchmarks.hams.setting import Setting
from benchmarks.hams.struck import Recovered, written
from producers.connection import ClientSettings
from topology.load import load


def found(names, modes=MODES):
    return {(blow.name, blow.mode): blow for blow in blows(names, modes)}


def test_each_service_loses_a_primary_in_each_mode_of_the_paper():
    made = found(["sa"])
    assert [made["primary", mode].paper_ms for mode in ("nspb", "remus", "lineage-stash")] == [116.12, 109.23, None]
    (late,) = (blow for blow in made.values() if blow.ahead)
    assert (late.mode, late.ahead, late.paper_ms) == (SELDOM, AHEAD, 124_430)
    assert {blow.service for blow in made.values()} == {"sa"}


def test_only_the_modes_that_were_asked_for_are_struck_and_the_rest_is_done_to_nspb():
    assert set(found(["ap"], ["none", "remus"])) == {("primary", "remus")}
    assert set(found(["ap"], ["none", "nspb"])) == {
        (name, "nspb") for name in ("primary", "two adjacent primaries", "Fig. 6", "stateless, a standby")
    }
    assert ("stateless and stateful, a standby", "nspb") in found(["fd"])


def test_what_two_cores_cannot_compute_comes_slower_and_is_watched_for_longer():
    rates = {name: service.rate for name, service in SERVICES.items()}
    assert rates == {**dict.fromkeys(rates, 10.0), "bandit": 50.0, "ol-small": 5.0, "ol-large": 1.0}
    assert found(["ol-small"])["primary", "nspb"].load == (3.0, 6.0)
    assert found(["ol-large"])["primary", "nspb"].load == (6.0, 20.0)
    assert not any(blow.ahead for blow in blows(["ol-large"], MODES))


def test_another_rate_may_be_asked_for():
    assert {blow.rate for blow in blows(["sa", "bandit"], MODES)} == {10.0, 50.0}
    assert {blow.rate for blow in blows(["sa", "bandit"], MODES, 20.0)} == {20.0}


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


def test_what_was_measured_is_kept_row_by_row_and_not_measured_again(tmp_path, monkeypatch):
    struck = Struck()
    monkeypatch.setattr(recovery, "under_load", struck)
    progress = Progress(tmp_path, go_on=True)
    setting = Setting(
        ClientSettings(bootstrap="nowhere:1"), tmp_path, {}, lambda _text: None, ("bandit",), ("none", "nspb"), (64,),
        3, 12, 1.0, progress,
    )  # fmt: skip
    recovery.measure_recovery(setting)
    assert [row["first_message_ms"] for row in progress.rows("recovery")] == [[50.0] * 3] * 2
    recovery.measure_recovery(replace(setting, rate=20.0))
    recovery.measure_recovery(setting)
    names = ["primary", "primary, by silence alone"]
    assert struck.dealt == [*((name, 50.0) for name in names), *((name, 20.0) for name in names)]
    assert len(progress.rows("recovery")) == 4


def test_figure_6_kills_a_primary_whose_state_is_held_and_the_next_ones_backup():
    blow = found(["ap"])["Fig. 6", "nspb"]
    assert (blow.primaries, blow.backups, blow.held) == (("track",), ("foresee",), "track")
    assert blow.reigns == ("track", "foresee")
    assert blow.paper_ms == 731.24


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
    assert of_held == {"model": "examples.stateful.vision:track", "file": "hold", "arguments": {}}


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_is_what_its_stages_say(tmp_path, mode):
    stages = variant(Cell(SERVICES["bandit"], mode, 8), tmp_path, 1).spec.stages
    assert stages[0].replication == ("lineage-stash" if mode == EACH_BATCH else mode)
    assert stages[0].checkpoint_every == (1 if mode == EACH_BATCH else 150)


def test_a_copy_at_every_batch_is_told_so():
    assert replication(SELDOM) == {"replication": "lineage-stash", "checkpoint_every": 9_600}
    assert label(EACH_BATCH) == "lineage-stash, a copy at every batch"
    assert label("remus") == "remus"


def test_the_table_tells_rates_and_what_was_computed_again():
    row = {"service": "ol-small", "blow": "primary", "mode": SELDOM, "rate": 5.0, "paper_ms": 21_090}
    row |= {"first_message_ms": [9.0, 11.0, 10.0], "first_outcome_ms": [30.0], "computed_again": [3_215, 3_300]}
    (table,) = tables({"rows": [row, row | {"mode": "nspb", "paper_ms": None, "computed_again": [0]}]})
    assert table.rows[0] == ["OL(M)", "primary", "lineage-stash", "5", "10 (9 to 11)", "30", "21090"]
    assert (table.rows[1][2], table.rows[1][-1]) == ("nspb", "-")
    assert "150 batches of 64: 3,215 to 3,300 requests" in table.notes[-1]
    assert len(table.notes) == 4
    assert "recovery" in SECTIONS


def test_the_death_of_a_stateless_replica_is_told_with_a_standby_and_without():
    kills = [standby.Kill(0.2, 0.3), standby.Kill(0.1, 0.5), standby.Kill(0.4, 0.3)]
    (table,) = standbys.tables({"rate": 50.0, "rows": [standby.row(1, kills), standby.row(0, kills[:1])]})
    assert table.rows[0] == ["1", "3", "200 (100 to 400)", "500", "320"]
    assert table.rows[1] == ["0", "1", "200", "300", "-"]
    assert "standby" in SECTIONS
