"""Workers added and taken away at run time in the simulator."""

from __future__ import annotations

import numpy as np
import pytest

from agents.core.policies import POLICIES
from agents.core.policies.fifo import Fifo
from agents.core.policy import StageState
from agents.sim.observe import Observer
from agents.sim.scaling import Scaling, StageScaler
from agents.sim.simulation import simulate
from lineage.errors import UsageError
from producers.report import PREDICTION

from .pipelines import pipeline

CHAIN = [("a", 10.0, 5.0, 4, ()), ("b", 10.0, 5.0, 4, ("a",))]  # a worker serves 4 in 30 ms: 133 a second


def follow(scaler, rates):
    """Workers decided after each second of these rates."""
    sent = np.cumsum(rates)
    return [scaler.decide(second + 1.0, int(count)) for second, count in enumerate(sent)]


def test_workers_follow_the_rate_up_at_once_and_down_after_a_while():
    scaler = StageScaler(Scaling(window=1.0, use=0.5, keep=3.0, most=5), throughput=100.0)
    assert follow(scaler, [40, 60, 200, 900, 60, 60, 60, 60, 60]) == [1, 2, 4, 5, 5, 5, 5, 2, 2]


def test_the_rate_is_that_of_the_window():
    scaler = StageScaler(Scaling(window=4.0, use=1.0, keep=0.0), throughput=100.0)
    assert follow(scaler, [100, 100, 100, 500, 500, 500, 500]) == [1, 1, 1, 2, 3, 4, 5]


def test_a_worker_serves_after_its_cold_start(tmp_path):
    small = pipeline(tmp_path, [("a", 100.0, 0.0, 1, ())])
    scaling = Scaling(period=1.0, window=1.0, use=1.0, cold_start=2.0, keep=100.0)
    arrivals = np.arange(0.01, 6.0, 0.05)  # 20 a second; a worker serves 10
    observer = Observer()
    result = simulate(
        small, arrivals, workers=[1], dispatch="worker", policy="naive", scaling=scaling, observer=observer
    )
    assert observer.sizes[:2] == [(0.0, "a", 1), (3.0, "a", 2)]  # decided at 1, there at 3
    assert (result.kind == PREDICTION).all()
    ends = np.sort(np.array(observer.stages["a"].ended))
    assert ((ends > 0.5) & (ends <= 2.5)).sum() == pytest.approx(20, abs=1)  # one worker
    assert ((ends > 3.5) & (ends <= 5.5)).sum() == pytest.approx(40, abs=2)  # two


def test_a_worker_that_goes_ends_what_it_has(tmp_path):
    small = pipeline(tmp_path, CHAIN)
    rng = np.random.default_rng(0)
    burst = np.sort(np.concatenate([rng.random(400) * 1.0, 1 + rng.random(400) * 20.0]))
    observer = Observer()
    scaling = Scaling(cold_start=0.5, window=1.0, keep=2.0)
    result = simulate(
        small, burst, workers=[6, 6], dispatch="worker", policy="naive", scaling=scaling, observer=observer
    )
    assert (result.kind == PREDICTION).all()
    assert [totals.received for totals in result.stages.values()] == [800, 800]
    counts = [count for _, stage, count in observer.sizes if stage == "a"]
    assert max(counts) == 6
    assert counts[-1] == 1


def test_policies_see_the_workers_that_are_there(tmp_path, monkeypatch):
    seen = []

    class Watcher(Fifo):
        def report(self, now, load):
            return StageState(self.view.stage, self.view.replica, now)

        def tick(self, now, load, states):
            seen.append((now, self.view.facts["a"].workers, len(states["a"])))

    monkeypatch.setitem(POLICIES, "naive", Watcher)
    small = pipeline(tmp_path, [("a", 100.0, 0.0, 1, ())])
    scaling = Scaling(period=1.0, window=1.0, use=1.0, cold_start=1.5, keep=100.0)
    simulate(
        small, np.arange(0.01, 6.0, 0.05), workers=[1], dispatch="worker", policy="naive", scaling=scaling, period=1.0
    )
    assert seen[:3] == [(1.0, 1, 1), (2.0, 1, 1), (3.0, 2, 2)]


def test_the_same_arguments_scale_the_same(tmp_path):
    small = pipeline(tmp_path, CHAIN)
    arrivals = np.cumsum(np.random.default_rng(3).exponential(1 / 300, 6000))
    runs = [
        simulate(small, arrivals, workers=[1, 1], dispatch="worker", policy="naive", scaling=Scaling())
        for _ in range(2)
    ]
    assert (runs[0].finished == runs[1].finished).all()


@pytest.mark.parametrize(
    "wrong", [{"period": 0.0}, {"use": -1.0}, {"cold_start": -1.0}, {"least": 0}, {"least": 3, "most": 2}]
)
def test_what_cannot_be_followed_is_refused(wrong):
    with pytest.raises(UsageError):
        Scaling(**wrong)


def test_scaling_is_for_a_queue_per_worker(tmp_path):
    with pytest.raises(UsageError, match="dispatch worker"):
        simulate(pipeline(tmp_path, CHAIN), [0.0], dispatch="shared", scaling=Scaling())
