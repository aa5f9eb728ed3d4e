"""The simulated serving of the InferLine evaluation: exact where sizes stay, and nothing lost where they change."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.inferline import traffic
from benchmarks.inferline.coarse import unit
from benchmarks.inferline.scalers import IDLE, AutoScale
from benchmarks.inferline.scene import CHOICES, SLO, gamma, price, scene, sizings
from benchmarks.inferline.serving import Serving

if TYPE_CHECKING:
    from collections.abc import Callable

RATE = 40.0


@dataclass
class Scripted:
    """Does as it is told at every look."""

    what: Callable[[float, Serving], object]
    period: float = 1.0
    looks: list[float] = field(default_factory=list)

    def look(self, now: float, serving: Serving) -> None:
        self.looks.append(now)
        self.what(now, serving)


def serve(scaler: Scripted | AutoScale, seconds: float = 30.0, rate: float = RATE) -> Serving:
    of = scene("social")
    config = of.config(of.plan(gamma(RATE, 1, 20, 0)))
    engine = Serving(of, config, gamma(rate, 1, seconds, 1), scaler, 0, "naive")
    engine.run()
    assert not np.isnan(np.frombuffer(engine.finished)).any()  # nothing is lost
    return engine


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.nightly if each == "image" else ()) for each in CHOICES]
)
def test_a_pipeline_whose_sizes_stay_is_served_as_the_estimator_says(name: str) -> None:
    of, live = scene(name), gamma(RATE, 4, 20, 1)
    config = of.config(of.plan(gamma(RATE, 4, 20, 0)))
    engine = Serving(of, config, live, Scripted(lambda _now, _serving: None), 0, "naive")
    engine.run()
    assert (np.frombuffer(engine.finished) - live == of.estimator(live)(sizings(config))).all()
    assert engine.cost() == pytest.approx(price(config) * float(live[-1]) / 3600)


def test_a_worker_costs_from_its_order_until_it_goes_and_serves_when_it_has_loaded() -> None:
    seen = []

    def change(now: float, serving: Serving) -> None:
        if now in {5.0, 20.0}:
            serving.resize(now, {"classify": serving.wanted("classify") + (2 if now == 5.0 else -2)})
        seen.append(serving.stages["classify"].stations[0].workers)

    engine = serve(Scripted(change))
    more = 2 * 15 / 3600 * engine.config["classify"].option.price
    stay = price(engine.config) * float(engine.arrived[-1]) / 3600
    assert engine.cost() == pytest.approx(stay + more)
    assert engine.orders == 2
    assert engine.reversals == 1
    first = seen[0]
    assert seen[:9] == [first] * 9
    assert seen[10:19] == [first + 2] * 9
    assert seen[20] == first


@pytest.mark.parametrize("seed", range(8))
def test_random_sizes_lose_nothing(seed: int) -> None:
    random = Random(seed)

    def change(now: float, serving: Serving) -> None:
        serving.resize(now, {name: random.randint(1, 8) for name in serving.config if random.random() < 0.5})

    engine = serve(Scripted(change, period=0.7))
    for name in engine.config:
        station = engine.stages[name].stations[0]
        assert station.workers == engine.wanted(name)
        assert station.depth == 0
    assert engine.inside(1e9) == 0


def test_autoscale_adds_units_at_once_and_takes_them_away_after_its_wait() -> None:
    scaler = AutoScale(dict.fromkeys(scene("social").options, 1.0), RATE / 4, 1)
    sizes: list[tuple[float, int]] = []

    def look(now: float, serving: Serving) -> None:
        scaler.look(now, serving)
        sizes.append((now, scaler.units))

    engine = serve(Scripted(look), 2 * IDLE + 60)
    assert engine.wanted("classify") == sizes[-1][1]
    assert max(units for _, units in sizes[:10]) > 1
    falls = [now for (_, before), (now, after) in itertools.pairwise(sizes) if after < before]
    assert falls
    assert all(now >= IDLE for now in falls)


@pytest.mark.parametrize("name", traffic.STRATEGIES)
def test_every_strategy_serves_a_rise(name: str) -> None:
    live = np.concatenate([gamma(RATE, 1, 20, 1), 20 + gamma(2 * RATE, 1, 20, 2)])
    found = traffic.play(name, traffic.setup("image", gamma(RATE, 1, 60, 0), live, 0))
    assert 0 <= found.misses <= 100
    assert found.cost > 0
    if name == "plan alone":
        assert found.orders == 0


def test_a_unit_serves_its_rate_within_the_slo_and_as_many_serve_a_peak() -> None:
    of, box = scene("image", "cpu", "k80"), unit("image")
    even = np.arange(0.0, 20.0, 1 / (0.99 * box.rate))
    assert np.quantile(of.estimator(even)(sizings(box.config)), 0.99) <= SLO
    sample = gamma(100, 4, 60, 0)
    counts = {choice.workers for choice in box.for_peak(sample).values()}
    assert len(counts) == 1
    assert counts.pop() > 100 / box.rate


def test_a_trace_is_scaled_to_a_rate_and_a_step_triples_the_second_half_of_what_is_served() -> None:
    even, stepped = (traffic.setup_of(name, 1) for name in ("steady", "steady+step"))
    whole = len(even.sample) + len(even.live)
    assert whole == pytest.approx(traffic.RATE * (traffic.SAMPLE + traffic.LIVE), rel=0.02)
    assert (even.sample == stepped.sample).all()
    before, after = np.histogram(stepped.live, 2, (0, traffic.LIVE))[0]
    assert after == pytest.approx(3 * before, rel=0.05)
