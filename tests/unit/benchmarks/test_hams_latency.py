"""The runs of `python -m benchmarks hams` that take hours are kept one by one, and compared repeat by repeat."""

import pytest

from benchmarks.hams import latency
from benchmarks.hams.cells import Measured
from benchmarks.hams.progress import Progress
from benchmarks.hams.setting import Setting
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
