"""The demo that breaks a model: its exit code says that the weight fell and returned, and no truth was lost."""

import subprocess

import pytest

from tests.acceptance.serving import ROOT, SPILLWAY


@pytest.mark.nightly
def test_the_demo_shows_a_model_that_fails_and_is_found_again():
    command = [SPILLWAY, "demo", "clipper-selection"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1_800, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    assert told.stdout.count("nearest is ") == 2
    page = (ROOT / ".spillway" / "demo" / "clipper-selection" / "report.html").read_text()
    assert page.count("<svg") == 3
    assert "Weights of the members" in page
