"""`python -m benchmarks state-copy` measures every step, and writes as little as it says."""

import json

from click.testing import CliRunner

from benchmarks.state_copy import state_copy


def test_it_reports_every_step_of_every_size():
    result = CliRunner().invoke(state_copy, ["--size", "1", "--repeats", "2", "--json"], standalone_mode=False)
    assert result.exit_code == 0, result.output
    (state,) = json.loads(result.output)["states"]
    assert state["written_bytes"] == {"all": 1_000_000, "1 %": state["written_bytes"]["1 %"], "none": 0}
    assert 0 < state["written_bytes"]["1 %"] < 300_000
    assert len(state["costs"]) == 11
    assert all(row["least_ms"] <= row["ms"] <= row["most_ms"] for row in state["costs"].values())
    table = CliRunner().invoke(state_copy, ["--size", "1", "--repeats", "1"], standalone_mode=False)
    assert "verify and assemble" in table.output
