"""The simulator on a small load gives what it gave when that was recorded."""

import json
import math
from pathlib import Path
from random import Random

import numpy as np
import pytest

from spillway.agents.sim.simulation import simulate

from .pipelines import pipeline

GOLDEN = Path(__file__).with_name("golden.json")
SHAPES = {
    "chain": [("a", 20.0, 8.0, 5, ()), ("b", 12.0, 5.0, 8, ("a",)), ("c", 14.0, 6.0, 7, ("b",))],
    "fork": [
        ("a", 20.0, 7.0, 4, ()),
        ("b", 15.0, 6.0, 6, ("a",)),
        ("c", 12.0, 5.0, 6, ("a",)),
        ("d", 8.0, 4.0, 8, ("b", "c")),
    ],
}
WORKERS = {"chain": [5, 3, 4], "fork": [5, 4, 3, 2]}


def arrivals():
    """20 s of Poisson arrivals, 120 a second, 450 a second for 5 s among them; by a generator that never changes."""
    random, now, times = Random(20), 0.0, []
    while now < 20:
        now += -math.log(1 - random.random()) / (450 if 8 <= now < 13 else 120)
        times.append(round(now, 6))
    return np.array(times)


def figures(shape, dispatch, policy):
    small = pipeline(SHAPES[shape], slo_ms=300.0)
    result = simulate(small, arrivals(), workers=WORKERS[shape], dispatch=dispatch, policy=policy, seed=3)
    report = result.report("recorded")
    return {
        "requests": report.requests,
        "good": report.good,
        "late": report.late,
        "dropped": report.outcomes.dropped,
        "batches": [stage.batches for stage in report.stages.values()],
        "invalid_rate": round(report.invalid_rate, 6),
        "p99": round(report.latency_ms.p99, 3),
    }


@pytest.mark.parametrize("policy", ["naive", "expired"])
@pytest.mark.parametrize("dispatch", ["worker", "shared", "partition"])
@pytest.mark.parametrize("shape", list(SHAPES))
def test_a_recorded_load_gives_what_it_gave(shape, dispatch, policy):
    golden = json.loads(GOLDEN.read_text())
    assert figures(shape, dispatch, policy) == golden[f"{shape} {dispatch} {policy}"]
