"""The demo that kills a primary: it judges itself, so its exit code says that nothing was lost or learned twice."""

import os
import subprocess

import pytest

from tests.acceptance.serving import ROOT, SPILLWAY

WITHIN = 240.0


@pytest.mark.nightly
def test_a_killed_primary_costs_nothing_but_a_moment() -> None:
    done = subprocess.run(
        [SPILLWAY, "demo", "hams"],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SIGKILL to bandit.0." in done.stdout
    rows = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "queries without an outcome 0" in rows
    assert "outcomes too many 0" in rows
    assert "rewards told 400" in rows
    assert "rewards that the newest durable state has learned from 400" in rows
    page = ROOT / ".spillway" / "demo" / "hams" / "report.html"
    assert page.read_text().count("<svg") == 3  # latency, answers, versions
