"""What an observer recorded, read as ways and as arrays."""

from __future__ import annotations

import numpy as np
import pytest

from agents.sim.observe import Observer
from agents.sim.simulation import simulate
from agents.sim.ways import visits_of, way_of, whole_waits
from producers.report import DROPPED, PREDICTION

from .pipelines import pipeline
from .test_simulation import CHAIN

ARRIVALS = np.cumsum(np.random.default_rng(2).exponential(1 / 200, 3000))


@pytest.fixture
def observed(tmp_path):
    observer = Observer()
    small = pipeline(tmp_path, CHAIN, slo_ms=150.0)
    return simulate(
        small, ARRIVALS, workers=[2, 2, 2], dispatch="worker", policy="expired", observer=observer
    ), observer


def test_a_way_is_without_gaps(observed):
    result, observer = observed
    for index in np.flatnonzero(result.kind == PREDICTION)[::200]:
        steps = way_of(observer, int(index))
        assert [step.stage for step in steps] == ["a", "b", "c"]
        assert steps[0].arrived == ARRIVALS[index]
        assert [step.ended for step in steps[:-1]] == [step.arrived for step in steps[1:]]
        assert steps[-1].ended == result.finished[index]
    lost = int(np.flatnonzero(result.kind == DROPPED)[5])
    last = way_of(observer, lost)[-1]
    assert last.dropped
    assert last.ended == result.finished[lost]


def test_what_visits_consume_adds_up_to_the_latency(observed):
    result, observer = observed
    total = np.zeros(len(ARRIVALS))
    for log in observer.stages.values():
        visits = visits_of(log)
        total[visits.index] += visits.consumed
    done = result.kind == PREDICTION
    assert total[done] == pytest.approx((result.finished - result.due)[done])


def test_waits_to_the_end_shrink_from_stage_to_stage(observed):
    result, observer = observed
    sums = whole_waits(observer, len(ARRIVALS))
    assert len(sums["a"]) == int((result.kind == PREDICTION).sum())
    assert (sums["a"] >= sums["b"]).all()
    assert sums["c"].mean() == pytest.approx(
        visits_of(observer.stages["c"]).waited[result.kind[visits_of(observer.stages["c"]).index] == PREDICTION].mean()
    )
