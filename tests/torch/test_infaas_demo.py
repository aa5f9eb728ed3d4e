"""The demonstration of variants: its exit code says that all was answered, and variants came with the load."""

import subprocess

import pytest

from tests.acceptance.serving import ROOT, SPILLWAY


@pytest.mark.nightly
def test_the_demo_shows_variants_that_come_with_the_load():
    command = [SPILLWAY, "demo", "infaas"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1_800, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "clipper+ by that" in told.stdout
    page = (ROOT / ".spillway" / "demo" / "infaas" / "report.html").read_text()
    assert page.count("<svg") == 3
