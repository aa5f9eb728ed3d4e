"""The sections of `spillway bench hams` that need no broker run in small; all make tables of what they found."""

import numpy as np
import pytest

from agents.bench.hams import batch_cost, catch_up, false_failovers, hidden, hold, logs, paper_hardware, written
from agents.bench.hams.command import SECTIONS
from agents.bench.hams.progress import Progress
from agents.bench.hams.setting import Setting
from agents.bench.hams.shard import change, make_state
from lineage.metric_names import STATE_HOLD_SECONDS
from producers.connection import ClientSettings


@pytest.fixture
def setting(tmp_path):
    return Setting(
        ClientSettings(bootstrap="nowhere:1"), tmp_path, {}, lambda _text: None, ("bandit",), ("none",), (1,), 1, 2,
        0.1, Progress(tmp_path / "results", go_on=True),
    )  # fmt: skip


def changed(before, after):
    return sum(int((one != other).sum()) for one, other in zip(before.values(), after.values(), strict=True))


@pytest.mark.parametrize(("share", "step"), [(0.01, 0), (0.01, 7), (0.3, 3), (1.0, 5)])
def test_a_change_is_as_large_as_asked_for_and_goes_round(share, step):
    state = make_state(0.04, tensors=4)
    before = {name: array.copy() for name, array in state.items()}
    change(state, share, step)
    assert changed(before, state) == round(share * sum(array.size for array in state.values()))


def test_changes_reach_the_whole_state():
    state = make_state(0.04, tensors=4)
    before = {name: array.copy() for name, array in state.items()}
    for step in range(10):
        change(state, 0.1, step)
    assert changed(before, state) == sum(array.size for array in state.values())
    assert np.float32(1e-3) == pytest.approx(float((state["layer0.weight"] - before["layer0.weight"])[0]), rel=1e-2)


def test_what_a_version_writes_is_counted(setting):
    found = written.measure_bytes(setting)
    (row,) = found["rows"]
    assert (row["service"], row["stage"], row["streams"]) == ("bandit", "bandit", 0)
    assert all(version["written_bytes"] == version["state_bytes"] == 3_504 for version in row["versions"])
    assert "| bandit | bandit | - | 3.5 kB |" in written.tables(found)[0].markdown()


def test_what_logging_costs_is_counted_in_all_sizes(setting, monkeypatch):
    monkeypatch.setattr(batch_cost, "_ROUNDS", 3)
    monkeypatch.setattr(batch_cost, "_WARM", 1)
    found = batch_cost.measure_logging(setting)
    assert [row["batch"] for row in found["rows"]] == list(batch_cost.SIZES)
    costs, headers = batch_cost.tables(found)
    assert len(costs.rows) == len(batch_cost.SIZES)
    assert [row["joined_bytes"] > row["in_a_row_bytes"] > 0 for row in found["headers"]] == [True] * 6
    assert len(headers.rows) == 6


def test_a_logged_round_records_a_version_that_becomes_durable():
    logged = batch_cost.Logged(4)
    for _ in range(3):
        logged.round()
    assert logged.core.reign.durable_n == logged.core.reign.recorded == 3
    assert logged.core.commits() == {}


COSTS = {
    "state_mb": 100.0,
    **{
        f"{name}_{clock}_ms": 50.0
        for name in ("compute", "update", "copy", "hash", "write")
        for clock in ("wall", "cpu")
    },
    "broker_cpu_ms": 100.0,
}


def test_what_the_papers_machines_need_is_computed_and_says_so():
    table = paper_hardware.computed_table(COSTS)
    assert "COMPUTED" in table.title
    rows = {row[0]: row for row in table.rows}
    assert rows["hash, in the writer's thread"][2:] == ["274 ms", "0.9"]
    assert rows["over the network, once"][2] == "110 ms"
    assert "548 ms: a version covers 2 batches" in table.notes[0]


def test_each_section_makes_tables_of_its_results():
    sizes = {"disk_bytes": 10_000_000, "read_bytes": 9_000_000, "records": 5, "tombstones": 2}
    case = {"pipeline": "p", "state_bytes": 10**7, "share": 0.01, "versions": 10, "retain": 2, "seconds": 1.0}
    case |= {"written_bytes": 10**8, "first": sizes, "end": sizes, "rest": sizes | {"disk_bytes": 30_000_000}}
    assert "30.0 MB (3.00x)" in logs.tables({"settled_after": 9.0, "rows": [case]})[0].markdown()
    row = {"repeat": 0, "seconds": 2.0, "cpu_seconds": 1.0, "apply_seconds": 0.5, "read_bytes": 10**8}
    shape = {"state_bytes": 10**8, "versions": 2, "share": 0.01, "written_seconds": 1.0}
    assert "| 50 |" in catch_up.tables(shape | {"rows": [row]})[0].markdown()
    run = {"repeat": 0, "waited_ms": 0.0, "cpu_ms": 1.0, "versions": 2, "written_after_ms": 5.0}
    runs = [{**run, "mode": mode, "batch_ms": ms} for mode, ms in (("bare", 100), (hidden.ON, 110), (hidden.OFF, 300))]
    made = hidden.tables({"batch": 64, "batches": 10, "costs": COSTS, "rows": runs})
    assert "| +10 % |" in made[1].markdown()
    figure = {STATE_HOLD_SECONDS: {"count": 9, "mean": 0.01, "p50": 0.01, "p99": 0.02}}
    served = {"service": "bandit", "mode": "nspb", "repeat": 0, "latency_ms": {"p50": 9.0, "p99": 10.0}}
    held = hold.tables({"rate": 100.0, "seconds": 1.0, "rows": [served | {"figures": figure}]})
    assert "| 10.00 | 20.00 |" in held[0].markdown()
    quiet = {"service": "bandit", "leases": [1.0], "minutes": 2.0, "seconds": 100.0, "answered": 500, "others": 0}
    found = {"in_flight": 9, "rows": [quiet | {"claims": [], "failovers": 0}]}
    assert "| bandit | 1 s | 2 | 5 | 0 | 0 |" in false_failovers.tables(found)[0].markdown()
    assert {"logs", "catch-up", "logging", "bytes", "large", "hold", "false-failovers"} <= set(SECTIONS)
