"""Every benchmark at its smallest size: it ends well, and says something. Its figures mean nothing here."""

import subprocess
import sys

import pytest

from benchmarks.__main__ import BENCHMARKS
from tests.acceptance.serving import ROOT

pytestmark = pytest.mark.nightly

WITHIN = 800.0
RUNS = [
    "pard --quick",
    "reference --policy naive --case lv@tweet-like",
    "policies --app tm --trace poisson --policy naive --dispatch shared --seconds 10",
    "policy-cost --policy naive --queue 10",
    "rag --queries 50 --rate 4 --seeds 1",
    "live --app tm --policy naive --rate 20 --seconds 5",
    "hams --service bandit --mode nspb --size 1 --repeats 1 --bursts 2 --minutes 0.1 --output {}",
    "clipper --only failing --repeats 1",
    "clipper --only limits --only beside --repeats 1 --seconds 0.2",
    "clipper --only observations --repeats 1 --seconds 0.2",
    "inferline --only coarse --repeats 1",
    "plans --seeds 1 --pipelines 2",
    "infaas --only program --repeats 1",
    "infaas --only live --repeats 1",
    "velox --only updates --only topk --repeats 2",
    "velox --only live-updates --runs 1",
    "parm --only rates --only codes --only live --repeats 1 --queries 1000",
    "state-copy --size 1 --repeats 1",
    "hop --repeats 1 --seconds 1 --messages 3000",
    "overhead --only chain-nspb --rate 40 --seconds 1",
    "overhead examples/applications/tm.yaml --seconds 1 --repeats 1",
    "gateway --only latency --rate 20 --seconds 2 --repeats 1",
    "gateway --only hostile --hostile 500",
    "gateway --only kill --requests 1000 --kill-rate 20",
    "start --repeats 1",
    "simulate --requests 500 --repeats 1",
]


def test_every_benchmark_is_run():
    assert {run.split()[0] for run in RUNS} == set(BENCHMARKS)


@pytest.mark.parametrize("run", RUNS)
def test_a_benchmark_ends_well(run, tmp_path):
    command = [sys.executable, "-m", "benchmarks", *run.format(tmp_path).split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WITHIN, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout or "skipped" in done.stderr
