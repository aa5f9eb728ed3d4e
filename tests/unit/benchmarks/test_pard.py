"""`python -m benchmarks pard`: its sections in small, its verdicts, and how it sizes a pipeline."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.pard.ablations import word
from benchmarks.pard.applications import (
    APPLICATIONS,
    application,
    capacity_of,
    from_artifact,
    needed_capacity,
    provision,
    throughput,
)
from benchmarks.pard.cases import Case, run_case
from benchmarks.pard.command import SECTIONS, pard
from benchmarks.pard.matrix import standing
from benchmarks.pard.paper import Range
from spillway.lineage.errors import UsageError
from spillway.topology.spec import EmulatedSpec


def run(*arguments):
    return CliRunner().invoke(pard, arguments, catch_exceptions=False)


def test_every_section_measures_and_fills_its_place_in_a_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- begin matrix -->\n<!-- end matrix -->\n")
    result = run("--quick", "--seconds", "12", "--markdown", str(page))
    assert result.exit_code == 0
    for block in result.stdout.split("\n\n"):
        assert len({line.count(" | ") for line in block.splitlines() if line.startswith("|")}) <= 1, block
    assert all(f"## {name}\n" in result.stdout for name in SECTIONS)
    assert "All accelerators are emulated." in result.stdout
    table = page.read_text().removeprefix("<!-- begin matrix -->\n").removesuffix("<!-- end matrix -->\n")
    assert table.startswith("**Drop rate")
    assert table in result.stdout
    found = json.loads(run("--quick", "--seconds", "12", "--only", "ablations", "--json").stdout)
    assert found["ablations"]["worker"]["pard"]["drop"]


def test_a_case_counts_every_request():
    figures = run_case(Case("tm", "tweet-like", "expired", seconds=20, load=1.5))
    assert figures.good + figures.late + sum(figures.drops.values()) == figures.requests
    assert figures.drop == pytest.approx(1 - figures.good / figures.requests)


@given(st.lists(st.integers(1, 500), min_size=3, max_size=60), st.sampled_from([0.01, 0.05, 0.2]))
def test_the_needed_capacity_leaves_the_excess(counts, excess):
    due = np.concatenate([np.full(count, second + 0.5) for second, count in enumerate(counts)])
    capacity = needed_capacity(due, excess)
    over = sum(max(0.0, count - capacity) for count in counts)
    if capacity > min(counts):
        assert over == pytest.approx(excess * sum(counts), rel=1e-6)
    else:
        assert over <= excess * sum(counts) + 1e-9


@pytest.mark.parametrize("name", APPLICATIONS)
def test_workers_serve_the_capacity_and_one_less_would_not(name):
    spec = application(name).spec
    workers = provision(spec, 321.0)
    assert capacity_of(spec, workers) >= 321.0
    for count, rate in zip(workers, throughput(spec).values(), strict=True):
        assert (count - 1) * rate < 321.0


def module(name, number, *pres, batch=4):
    return {"name": name, "id": number, "pres": [*pres], "alpha_ms": 20.0, "beta_ms": 7.0, "batch": batch}


def test_the_artifacts_form_becomes_a_pipeline_of_emulated_stages(tmp_path):
    modules = [
        module("person", 0),
        module("pose", 1, 0),
        module("face", 2, 0),
        module("expression", 3, 1, 2, batch=100),
    ]
    file = tmp_path / "da.json"
    file.write_text(json.dumps({"pipeline": "da", "slo_ms": 420.0, "modules": modules}))
    read = from_artifact(file)
    assert (read.spec.name, read.spec.slo) == ("da", 0.42)
    before = {"person": (), "pose": ("person",), "face": ("person",), "expression": ("pose", "face")}
    assert read.graph.predecessors == before
    stage = read.spec.stage("pose")
    assert (stage.emulated, stage.batching.size) == (EmulatedSpec(alpha=0.02, beta=0.007), 4)
    assert read.spec.stage("expression").batching.most == 100


@pytest.mark.parametrize("left_out", ["modules", "slo_ms", "pipeline"])
def test_another_form_is_refused_by_name(tmp_path, left_out):
    said = {"pipeline": "da", "slo_ms": 420.0, "modules": [module("a", 0)]}
    del said[left_out]
    (tmp_path / "da.json").write_text(json.dumps(said))
    with pytest.raises(UsageError, match=rf"da\.json is not in the form of PARD's artifact: KeyError\('{left_out}'\)"):
        from_artifact(tmp_path / "da.json")


def test_words_follow_from_the_numbers():
    paper = Range(1.6, 16.7)
    assert standing(0.02, 0.0198, paper) == "even"
    assert standing(0.01, 0.02, paper) == "**loses**"
    assert standing(0.013, 0.01, paper) == "wins, below the range"
    assert standing(0.05, 0.01, paper) == "wins, in the range"
    assert standing(0.5, 0.01, paper) == "wins, above the range"
    assert "sign differs" in word(0.008, 0.010, 2.8)
    assert "no difference" in word(0.0101, 0.0100, 2.8)
    assert word(0.05, 0.01, 2.8) == "as in the paper, more so"
    assert word(0.02, 0.01, 2.8) == "as in the paper, less so"
