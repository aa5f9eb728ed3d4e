"""What is done to the services to see how soon they go on, and the tables of it."""

from contextlib import contextmanager
from dataclasses import replace

import pytest

from benchmarks.hams import recovery
from benchmarks.hams.cells import Cell, variant
from benchmarks.hams.progress import Progress
from benchmarks.hams.services import EACH_BATCH, MODES, SERVICES
from benchmarks.hams.setting import Setting
from benchmarks.hams.struck import Recovered
from producers.connection import ClientSettings


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


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_is_what_its_stages_say(tmp_path, mode):
    stages = variant(Cell(SERVICES["bandit"], mode, 8), tmp_path, 1).spec.stages
    assert stages[0].replication == ("lineage-stash" if mode == EACH_BATCH else mode)
    assert stages[0].checkpoint_every == (1 if mode == EACH_BATCH else 150)
