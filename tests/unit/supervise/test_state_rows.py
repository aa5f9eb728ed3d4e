"""What members of stateful shards tell of themselves, and what a person sees of it."""

import json
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest

from spillway.agents.live.gate.metrics import GateMetrics
from spillway.agents.metrics import Distribution, DurableLag, StageMetrics, StateMetrics, marks_histogram
from spillway.agents.supervise.table import state_rows, state_table
from tests.unit.supervise.test_readings import GATE, STAGE, printed, reading, told


def member(role, **numbers):
    metrics = StageMetrics("p", "learn", 1)
    metrics.state = StateMetrics()
    metrics.state.role = role
    for name, value in numbers.items():
        setattr(metrics.state, name, value)
    return metrics


def test_every_number_of_a_member_is_found_again():
    primary = member(
        "primary",
        epoch=3,
        version=lambda: 120,
        durable=118,
        lag=SimpleNamespace(seconds=lambda: 0.012),
        written=5_000_000,
    )
    primary.state.captures.observe(0.004)
    backup = member("backup", epoch=3, version=lambda: 117, durable=118)
    rows = state_rows(
        [
            ("learn.0.0", reading(primary, 0.0)),
            ("learn.0.1", reading(backup, 0.0)),
            ("a.0", reading(StageMetrics("p", "a", 0), 0.0)),  # which has no state
        ]
    )
    assert [row.name for row in rows] == ["learn.0.0", "learn.0.1"]
    assert (rows[0].role, rows[0].epoch, rows[0].version, rows[0].durable) == ("primary", 3, 120, 118)
    assert (rows[0].durable_lag, rows[0].backup_lag, rows[0].written) == (pytest.approx(0.012), 0, 5_000_000)
    assert rows[0].capture == pytest.approx(0.004)
    assert (rows[1].role, rows[1].backup_lag) == ("backup", 1)
    assert json.dumps([asdict(row) for row in rows])
    text = printed(state_table(rows))
    assert "lag ms" in text
    assert "…" not in text


def test_a_primary_has_no_backup_lag():
    assert member("primary", durable=5).state.backup_lag == 0
    assert member("backup", durable=5, version=lambda: 7).state.backup_lag == 0


def test_waiting_and_marks_are_shown_where_there_are_any():
    gate = GateMetrics("p")
    assert not any("waited" in line for line in told(gate, GATE))
    gate.hold = Distribution()
    gate.hold.observe(0.004)
    assert any("gate.0: outcomes waited" in line for line in told(gate, GATE))
    stage = StageMetrics("p", "a", 0)
    stage.marks = marks_histogram()
    stage.marks.observe(33)
    assert told(stage, replace(STAGE, stage="a")) == ["a.0: 33.0 bytes of marks per message"]


def test_the_lag_is_that_of_the_oldest_version_that_waits():
    now = [10.0]
    lag = DurableLag(lambda: now[0])
    assert lag.seconds() == 0.0
    lag.note(3, 3)
    assert lag.seconds() == 0.0
    lag.note(4, 3)
    now[0] = 11.0
    lag.note(6, 3)
    assert lag.seconds() == 1.0
    lag.note(6, 4)
    now[0] = 11.5
    assert lag.seconds() == 0.5
    lag.note(6, 6)
    assert lag.seconds() == 0.0
    lag.note(7, 6)
    lag.clear()
    assert lag.seconds() == 0.0
