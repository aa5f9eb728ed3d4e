"""`python -m benchmarks rag`: its figures, its table and its plot."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from benchmarks.rag import command as bench
from benchmarks.rag.pipeline import POLICIES


def run(*options):
    result = CliRunner().invoke(bench.rag, ["--queries", "120", "--seeds", "2", *options])
    assert result.exit_code == 0, result.output
    return result.output


def test_it_gives_every_policy_on_every_seed_beside_the_paper(tmp_path):
    plot = tmp_path / "rag.png"
    told = json.loads(run("--rate", "9", "--json", "--plot", str(plot)))
    assert plot.stat().st_size > 10_000
    assert set(told["policies"]) == set(POLICIES)
    assert len(told["cells"]) == 2 * len(POLICIES)
    assert told["paper"]["proactive"] == 0.17
    assert told["policies"]["reactive"]["drops_against_reactive"]["mean"] == 0
    for found in told["policies"].values():
        spread = found["drop_rate"]
        assert 0 <= spread["least"] <= spread["mean"] <= spread["most"] <= 1


def test_the_table_names_every_policy():
    shown = run("--rate", "9")
    assert all(policy in shown for policy in POLICIES)
    assert "emulated" in shown


def test_without_a_rate_it_is_where_reactive_drops_what_the_papers_does():
    rate = bench.matching_rate(None, 300, seeds=1)
    queries = bench.conversations(None, 300, rate, 0)
    assert bench.simulate_rag(queries, "reactive", 0).drop_rate == pytest.approx(bench.PAPER["reactive"], abs=0.03)
