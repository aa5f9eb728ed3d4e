"""The demo that stops workers: it judges itself, so its exit code says that nothing was lost or answered twice."""

import subprocess

import pytest

from tests.acceptance.serving import ROOT, SPILLWAY


@pytest.mark.nightly
def test_the_demo_shows_answers_that_were_made_for_workers_that_stood_still():
    command = [SPILLWAY, "demo", "parm"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1_800, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    rows = {line[: line.find("  ")]: line.split() for line in told.stdout.splitlines()}
    assert rows["queries lost, answered twice"][-4:] == ["0,", "0", "0,", "0"]
    assert float(rows["of them right"][-2]) > 80
    page = (ROOT / ".spillway" / "demo" / "parm" / "report.html").read_text()
    assert page.count("<svg") == 2
    assert "reconstructed answers" in page
