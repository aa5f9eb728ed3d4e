"""The comparison of policies: its verdicts on made-up cells, its workloads, and that its cells can be run."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import stolen
from benchmarks.__main__ import BENCHMARKS, benchmarks
from benchmarks.output import Table
from benchmarks.policies import policies, ratio
from benchmarks.policies_cells import Cell, bound_of, hops_of, outcome, prepared
from benchmarks.shapes import RATE, SHAPES, varied
from benchmarks.stolen import StolenMeter, with_note
from benchmarks.workloads import problems, read_manifest
from spillway.lineage.errors import UsageError
from spillway.lineage.metric_names import GATE


def test_cells_that_say_nothing_are_left_out():
    assert ratio([(0.02, 0.04), (0.01, 0.0001)]) == pytest.approx(0.5)
    assert ratio([]) == 1.0


def test_a_cell_can_be_run():
    cell = Cell("tm", "on-off", 10, 1.5)
    due, workers = prepared(cell)
    assert len(workers) == 3
    assert bound_of(cell) <= outcome(cell, "spillway", "shared").drop < outcome(cell, "naive", "shared").drop
    assert len(due) > 1000


def test_every_message_takes_its_own_time():
    cell = Cell("tm", "poisson", 10, hops=True)
    due, _ = prepared(cell)
    hops = hops_of(cell, len(due))
    assert set(hops) == {"object", "face", "text", GATE}
    assert all(0.003 <= each.min() < each.max() <= 0.02 for each in hops.values())
    assert not (hops["face"] == hops["text"]).any()
    assert hops_of(Cell("tm", "poisson", 10), len(due)) is None
    assert bound_of(cell) >= bound_of(Cell("tm", "poisson", 10))
    heavy = Cell("tm", "poisson", 10, 1.5)
    assert outcome(replace(heavy, hops=True), "naive", "shared").drop > outcome(heavy, "naive", "shared").drop


def test_the_cases_of_a_reference(tmp_path):
    folder, apps = tmp_path / "reference", tmp_path / "apps"
    for each in (folder, apps):
        each.mkdir()
    module = {"name": "only", "id": 0, "pres": [], "subs": [], "alpha_ms": 5.0, "beta_ms": 5.0, "batch": 4}
    (apps / "one.json").write_text(json.dumps({"pipeline": "one", "slo_ms": 100.0, "modules": [module]}))
    with gzip.open(folder / "arrivals.csv.gz", "wt") as file:
        file.write("t\n" + "".join(f"{number / 200:.6f}\n" for number in range(200)))
    (folder / "pard-reference.csv").write_text(
        "trace,app,policy,workers,requests,good,drop_pct,invalid_pct,late,mean_batch,clairvoyant_drop_pct\n"
        "arrivals,one,clipper++,1,200,150,25.0,1.0,0,4,20.0\narrivals,one,pard,1,200,140,30.0,2.0,0,4,20.0\n"
    )
    options = ["--reference", "--policy", "clipper++", "--json"]
    result = CliRunner().invoke(policies, options, env={"SPILLWAY_REFERENCE": str(folder)})
    shared, worker = json.loads(result.stdout)
    assert worker["outcomes"]["pard"] == [0.3, 0.02]  # theirs
    assert shared["outcomes"]["pard"] != [0.3, 0.02]  # they say nothing of it
    assert {shared["dispatch"], worker["dispatch"]} == {"shared", "worker"}
    assert worker["bound"] <= worker["outcomes"]["spillway"][0] < 0.5


# Every evaluation can be found by its name.


@pytest.mark.parametrize("name", BENCHMARKS)
def test_each_is_found_by_its_name(name):
    assert (
        f"benchmarks {name} [OPTIONS]"
        in CliRunner().invoke(benchmarks, [name, "--help"], prog_name="benchmarks").output
    )


# Figures that were made while a machine's host had the processors say so.

TABLES = [Table("one", ("a",), [["1"]], ("Said before.",)), Table("two", ("a",), [["1"]])]


def times(monkeypatch, **given):
    class Times(SimpleNamespace):
        def __iter__(self):
            return iter(vars(self).values())

    monkeypatch.setattr(stolen.psutil, "cpu_times", lambda: Times(**given))


def test_what_is_stolen_is_a_share_of_all_time(monkeypatch):
    times(monkeypatch, user=100.0, idle=50.0, steal=10.0, guest=40.0)  # a guest's time is in the user's
    meter = StolenMeter()
    times(monkeypatch, user=160.0, idle=60.0, steal=40.0, guest=70.0)
    assert meter.share() == 0.3


def test_runs_that_lost_much_are_called_incomparable():
    first, second = with_note(TABLES, {"rows": [{"stolen": 0.0}, {"stolen": 0.02}, {"stolen": 0.5}]})
    assert first.notes == (
        "Said before.",
        (
            "The machine's host gave 2% of its processors to others, 50% in the worst run; "
            "runs that lost so much cannot be compared with each other."
        ),
    )
    assert second == TABLES[1]


MANIFEST = Path(__file__).parents[3] / "traces" / "manifest.yaml"


def test_every_workload_is_what_its_spec_makes():
    assert problems(MANIFEST) == []


def test_every_trace_is_in_the_manifest():
    named = {workload["file"] for workload in read_manifest(MANIFEST)}
    assert {file.name for file in MANIFEST.parent.glob("*.csv*")} == named


def test_a_changed_file_is_noticed(tmp_path):
    for file in MANIFEST.parent.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "bursty.csv").write_text("second,requests\n0,1\n")
    assert problems(tmp_path / "manifest.yaml") == [f"{tmp_path / 'bursty.csv'}: is not what its spec makes"]


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_have_the_variation_that_they_are_to_have(name):
    shape = SHAPES[name]
    rates = shape.rates(300, 4)
    assert rates.mean() == pytest.approx(RATE)
    assert rates.std() / rates.mean() == pytest.approx(shape.cv, abs=1e-6)
    assert rates.min() > 0
    arrivals = shape.arrivals(300, 4)
    assert (np.diff(arrivals) >= 0).all()
    assert len(arrivals) == pytest.approx(300 * RATE, rel=0.03)
    assert (arrivals == shape.arrivals(300, 4)).all()
    assert len(arrivals) != len(shape.arrivals(300, 5))


def test_a_variation_that_no_power_gives_is_refused():
    with pytest.raises(UsageError, match="too few"):
        varied(np.array([1.0, 2.0]), 5.0)
