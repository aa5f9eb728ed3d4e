"""The observer sees everything once, and changes nothing."""

import numpy as np
import pytest

from agents.sim.observe import Observer
from agents.sim.simulation import simulate
from producers.report import DROPPED, PREDICTION

from .pipelines import pipeline
from .test_simulation import CHAIN, DIAMOND

ARRIVALS = np.cumsum(np.random.default_rng(1).gamma(0.4, 1 / 0.4 / 260.0, 4000))


def observed(tmp_path, stages, **options):
    observer = Observer(**options)
    small = pipeline(tmp_path, stages, slo_ms=150.0)
    workers = [2] * len(stages)
    result = simulate(small, ARRIVALS, workers=workers, dispatch="worker", policy="expired", observer=observer)
    plain = simulate(small, ARRIVALS, workers=workers, dispatch="worker", policy="expired")
    assert (plain.finished == result.finished).all()
    return result, observer


def test_drops_per_stage_add_up_to_the_drops(tmp_path):
    result, observer = observed(tmp_path, CHAIN)
    drops = [index for log in observer.stages.values() for index in log.drops]
    assert len(drops) > 100
    assert sorted(drops) == np.flatnonzero(result.kind == DROPPED).tolist()
    for name, log in observer.stages.items():
        assert len(log.drops) == result.stages[name].dropped
        assert (np.array(log.dropped) >= np.array(log.drop_arrived)).all()


def test_a_request_that_two_branches_drop_is_dropped_once(tmp_path):
    result, observer = observed(tmp_path, DIAMOND)
    drops = [index for log in observer.stages.values() for index in log.drops]
    assert set(drops) == set(np.flatnonzero(result.kind == DROPPED).tolist())
    assert len(drops) >= len(set(drops))


def test_visits_tell_each_request_s_way(tmp_path):
    result, observer = observed(tmp_path, CHAIN)
    done = result.kind == PREDICTION
    before = dict(enumerate(ARRIVALS))
    for name, log in observer.stages.items():
        totals = result.stages[name]
        assert len(log.visits) == totals.queries
        arrived, entered, started, ended = (
            np.array(times) for times in (log.arrived, log.entered, log.started, log.ended)
        )
        assert (arrived <= entered).all()
        assert (entered <= started).all()
        assert (entered - arrived).mean() == pytest.approx(totals.queued)
        assert (started - entered).mean() == pytest.approx(totals.waited)
        assert sum(1 / size for size in log.sizes) == pytest.approx(totals.batches)
        assert arrived.tolist() == [before[index] for index in log.visits]
        before = dict(zip(log.visits, ended.tolist(), strict=True))
    assert {index: float(result.finished[index]) for index in np.flatnonzero(done)} == before


def test_a_sample_is_the_same_requests_everywhere(tmp_path):
    _, whole = observed(tmp_path, CHAIN)
    _, sample = observed(tmp_path, CHAIN, every=7)
    for name, log in sample.stages.items():
        assert list(log.visits) == [index for index in whole.stages[name].visits if index % 7 == 0]
        assert list(log.drops) == list(whole.stages[name].drops)
