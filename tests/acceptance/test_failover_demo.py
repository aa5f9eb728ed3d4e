"""The demo that kills a primary: it judges itself, so its exit code says that nothing was lost or learned twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
WITHIN = 240.0


def test_a_killed_primary_costs_nothing_but_a_moment() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.stateful.failover"],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SIGKILL to bandit.0." in done.stdout
    assert "0 without an outcome, 0 outcomes too many" in done.stdout
    assert "400 rewards were told" in done.stdout
    assert "has learned from 400" in done.stdout
