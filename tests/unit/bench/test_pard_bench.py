"""Every section of `spillway bench pard`, with --quick on the shortest traces."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from agents.bench.pard.cases import Case, Figures, Runner, run_case, set_up
from agents.bench.pard.command import SECTIONS
from agents.cli.commands.bench import bench


def run(*arguments):
    return CliRunner().invoke(bench, ["pard", *arguments], catch_exceptions=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("pard")
    result = run("--quick", "--seconds", "12", "--output", str(found))
    assert result.exit_code == 0, result.output
    assert "All accelerators are emulated." in result.output
    return found


@pytest.mark.parametrize("name", SECTIONS)
def test_each_section_leaves_its_result_and_tables(folder, name):
    result = json.loads((folder / f"{name}.json").read_text())
    assert result["took"]["wall_seconds"] >= 0
    text = (folder / f"{name}.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) > 2
    for block in text.split("\n\n"):
        columns = {line.count(" | ") for line in block.splitlines() if line.startswith("|")}
        assert len(columns) <= 1, block


def test_the_charts_are_there(folder):
    names = {file.stem for file in folder.glob("*.svg")}
    expected = {"matrix", "windows", "slo", "scaling", "stress", "stages", "budgets", "sensitivity"}
    assert names >= expected | {"over-time", "latency", "mu", "requests-pard"}


def test_a_dropped_request_is_drawn(folder, tmp_path):
    result = json.loads((folder / "mu.json").read_text())
    result["runs"]["pard"]["ways"] = {
        "dropped": [["person", 0.0, 0.1, 0.1, 0.13, False], ["face", 0.13, 0.2, 0.2, 0.2, True]]
    }
    assert tmp_path / "requests-pard.svg" in SECTIONS["mu"].draw(result, tmp_path)
    assert "dropped" in SECTIONS["mu"].tables(result)[1].markdown()


def test_rendering_again_measures_nothing_and_gives_the_same(folder, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- begin stages -->\n<!-- end stages -->\n")
    before = (folder / "stages.md").read_text()
    result = run("--render", "--only", "stages", "--output", str(folder), "--markdown", str(page))
    assert result.exit_code == 0
    assert (folder / "stages.md").read_text() == before
    assert before in page.read_text()


def test_rendering_what_was_not_measured_says_so(tmp_path):
    result = run("--render", "--only", "mu", "--output", str(tmp_path))
    assert result.exit_code == 0
    assert "mu was not measured" in result.output


def test_a_result_of_something_else_is_refused(tmp_path):
    (tmp_path / "mu.json").write_text("{")
    result = CliRunner().invoke(bench, ["pard", "--render", "--only", "mu", "--output", str(tmp_path)])
    assert result.exit_code != 0


def test_equal_cases_are_run_once():
    told = []
    runner = Runner(progress=lambda done, total: told.append((done, total)))
    case = Case("tm", "wiki-like", "naive", seconds=20)
    first = runner.run([case, case])
    again = runner.run([case])
    assert told == [(1, 1)]
    assert first == again


def test_a_case_counts_every_request():
    case = Case("tm", "tweet-like", "expired", seconds=20, load=1.5)
    figures = run_case(case)
    assert isinstance(figures, Figures)
    assert figures.requests == len(set_up(case).arrivals)
    assert figures.good + figures.late + sum(figures.drops.values()) == figures.requests
    assert figures.drop == pytest.approx(1 - figures.good / figures.requests)
    assert 0 <= figures.hard_good <= figures.hard_requests <= figures.requests
