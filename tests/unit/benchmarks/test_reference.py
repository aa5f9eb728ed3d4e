"""Agreement with an independent simulator on real traffic.

The reference lies outside the repository: `pard-reference.csv`, the arrivals that it names, and, in `../apps` beside
it, the pipelines. SPILLWAY_REFERENCE names its folder.
"""

import csv
import gzip
import json
import os
from pathlib import Path

import pytest

from benchmarks.pard.applications import from_artifact
from benchmarks.reference import TABLE, compare, reference, rows
from spillway.agents.cli.main import run as run_command
from spillway.agents.sim.simulation import simulate
from spillway.producers.load.traces import arrivals

ROOT = Path(__file__).resolve().parents[3]
REFERENCE = Path(os.environ.get("SPILLWAY_REFERENCE") or ROOT.parent / "shared" / "reference")
SHORT = ("arrivals_at_256698", "tm")
LONG = [
    ("arrivals_at_246430", "lv"),
    ("arrivals_at_246430", "ga"),
    ("arrivals_at_246430", "da"),
    ("arrivals_conv_221667", "tm"),
    ("arrivals_conv_212800", "lv"),
    ("arrivals_conv_212800", "ga"),
    ("arrivals_conv_221667", "da"),
]
CASES = [SHORT, *(pytest.param(*case, marks=pytest.mark.nightly) for case in LONG)]


@pytest.mark.parametrize(("trace", "app"), CASES)
def test_naive_agrees_with_the_reference(trace, app):
    table = REFERENCE / "pard-reference.csv"
    if not table.is_file():
        pytest.skip(f"no reference in {REFERENCE}; set SPILLWAY_REFERENCE to another folder")
    with table.open() as lines:
        (row,) = [
            row for row in csv.DictReader(lines) if (row["trace"], row["app"], row["policy"]) == (trace, app, "naive")
        ]
    result = simulate(
        from_artifact(REFERENCE.parent / "apps" / f"{app}.json"),
        arrivals(REFERENCE / f"{trace}.csv.gz"),
        workers=[int(count) for count in row["workers"].split()],
        dispatch="worker",
        policy="naive",
    )
    report = result.report(trace)
    assert report.requests == int(row["requests"])
    assert report.good == pytest.approx(int(row["good"]), rel=0.001)
    assert report.outcomes.dropped == report.outcomes.missing == 0
    assert 100 * report.invalid_rate == pytest.approx(float(row["invalid_pct"]), abs=0.02)
    means = [stage.mean_batch for stage in report.stages.values()]
    assert means == pytest.approx([float(mean) for mean in row["mean_batch"].split()], abs=0.011)


def cell(policy, case="tm@arrivals_conv_221667"):
    """A case, simulated; the shortest, if none is named."""
    if not (REFERENCE / TABLE).is_file():
        pytest.skip(f"no reference in {REFERENCE}; set SPILLWAY_REFERENCE to another folder")
    (row,) = rows(REFERENCE, [policy], [case])
    return compare(REFERENCE, row)


@pytest.mark.nightly
def test_pard_agrees_with_the_reference():
    found = cell("pard")
    assert found.agrees, found
    assert found.drop == pytest.approx(found.drop_reference, abs=0.01)


@pytest.mark.nightly
@pytest.mark.parametrize("case", ["lv@arrivals_conv_212800", "da@arrivals_at_246430"])
def test_nexus_agrees_where_queues_fill_behind_the_first_stage(case):
    """Where requests wait in another order than they were sent in, its window drops more than the head of the queue."""
    found = cell("nexus", case)
    assert found.drop == pytest.approx(found.drop_reference, abs=0.001)
    assert found.invalid == pytest.approx(found.invalid_reference, abs=0.001)


ONE = {
    "pipeline": "one",
    "slo_ms": 500.0,
    "modules": [{"name": "a", "id": 0, "pres": [], "subs": [], "alpha_ms": 5.0, "beta_ms": 1.0, "batch": 2}],
}


def fake_reference(folder, drop):
    """One cell of which the truth is known: 100 requests, far apart, none of which is dropped."""
    (folder / "apps").mkdir()
    (folder / "reference").mkdir()
    (folder / "apps" / "one.json").write_text(json.dumps(ONE))
    with gzip.open(folder / "reference" / "far.csv.gz", "wt") as lines:
        lines.write("t\n" + "".join(f"{second}\n" for second in range(100)))
    (folder / "reference" / TABLE).write_text(
        f"trace,app,policy,workers,requests,good,drop_pct,invalid_pct,late,mean_batch\nfar,one,pard,1,100,100,{drop},0,0,1"
    )
    return str(folder / "reference")


def test_the_bench_says_whether_all_agrees(tmp_path, capsys):
    assert run_command(["--folder", fake_reference(tmp_path, 0.05), "--json"], reference) == 0
    (said,) = json.loads(capsys.readouterr().out)
    assert (said["drop"], said["drop_reference"], said["verdict"]) == (0.0, 0.05, "agrees")


def test_the_bench_fails_where_a_cell_is_outside(tmp_path, capsys):
    assert run_command(["--folder", fake_reference(tmp_path, 2.0)], reference) == 1
    assert "DIFFERS" in capsys.readouterr().out
