"""`python -m benchmarks pard`: its sections in small, its verdicts, and how it sizes a pipeline."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.pard.applications import needed_capacity
from benchmarks.pard.cases import Case, run_case
from benchmarks.pard.command import SECTIONS, pard


def run(*arguments):
    return CliRunner().invoke(pard, arguments, catch_exceptions=False)


def test_every_section_measures_and_renders_the_same_again(tmp_path):
    assert run("--quick", "--seconds", "12", "--output", str(tmp_path)).exit_code == 0
    assert json.loads((tmp_path / "matrix.json").read_text())["took_seconds"] >= 0
    before = {name: (tmp_path / f"{name}.md").read_text() for name in SECTIONS}
    for text in before.values():
        for block in text.split("\n\n"):
            assert len({line.count(" | ") for line in block.splitlines() if line.startswith("|")}) <= 1, block
    page = tmp_path / "page.md"
    page.write_text("<!-- begin matrix -->\n<!-- end matrix -->\n")
    result = run("--render", "--output", str(tmp_path), "--markdown", str(page))
    assert "All accelerators are emulated." in result.output
    assert {name: (tmp_path / f"{name}.md").read_text() for name in SECTIONS} == before
    assert before["matrix"] in page.read_text()


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
