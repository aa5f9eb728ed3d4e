"""The simulated serving of the InferLine evaluation: exact where sizes stay, and nothing lost where they change."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest
import yaml

from benchmarks.inferline import live as served_live
from benchmarks.inferline import recorded
from benchmarks.inferline.contest import OURS, PARD, STRATEGIES, Setup, play
from benchmarks.inferline.scalers import IDLE, AutoScale
from benchmarks.inferline.scene import CHOICES, gamma, price, scene
from benchmarks.inferline.serving import Serving, served
from spillway.topology.spec import PipelineSpec

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
    engine = Serving(of, config, gamma(rate, 1, seconds, 1), scaler, 0.15, 0, "naive")
    engine.run()
    assert not np.isnan(np.frombuffer(engine.finished)).any()  # nothing is lost
    return engine


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.nightly if each == "image" else ()) for each in CHOICES]
)
def test_a_pipeline_whose_sizes_stay_is_served_as_the_estimator_says(name: str) -> None:
    of, live = scene(name), gamma(RATE, 4, 20, 1)
    config = of.config(of.plan(gamma(RATE, 4, 20, 0)))
    looked, estimated = served(of, config, live, Scripted(lambda _now, _serving: None)), served(of, config, live)
    assert (looked.latencies == estimated.latencies).all()
    assert looked.cost == pytest.approx(estimated.cost)
    assert looked.misses == estimated.misses


def test_a_worker_costs_from_its_order_until_it_goes_and_serves_when_it_has_loaded() -> None:
    seen = []

    def change(now: float, serving: Serving) -> None:
        if now in {5.0, 20.0}:
            size = serving.wanted("classify") + (2 if now == 5.0 else -2)
            assert serving.resize(now, {"classify": size})
        seen.append(serving.stages["classify"].stations[0].workers)

    engine = serve(Scripted(change))
    more = 2 * 15 / 3600 * engine.config["classify"].option.price
    stay = price(engine.config) * float(engine.arrived[-1]) / 3600
    assert stay + 0.99999 * more <= engine.cost() < stay + 1.01 * more  # a worker that drains ends its batch
    assert engine.orders == 2
    assert engine.reversals == 1
    first = seen[0]
    assert seen[:9] == [first] * 9
    assert seen[10:19] == [first + 2] * 9
    assert seen[20] == first


@pytest.mark.parametrize("seed", range(8))
def test_random_sizes_and_restarts_lose_nothing(seed: int) -> None:
    random = Random(seed)

    def change(now: float, serving: Serving) -> None:
        sizes = {name: random.randint(1, 8) for name in serving.config}
        if random.random() < 0.2:
            serving.restart(now, sizes, random.uniform(0, 3))
        else:
            serving.resize(now, {name: size for name, size in sizes.items() if random.random() < 0.5})

    engine = serve(Scripted(change, period=0.7))
    for name in engine.config:
        assert engine.stages[name].stations[0].workers == engine.wanted(name)
        assert engine.lag(name) == 0
    assert engine.inside(1e9) == 0


def test_more_than_the_catalogue_has_is_not_ordered() -> None:
    answers = []
    engine = serve(Scripted(lambda now, serving: answers.append(serving.resize(now, {"classify": 1_000}))))
    assert not any(answers)
    assert engine.orders == 0


def test_autoscale_adds_units_at_once_and_takes_them_away_after_its_wait() -> None:
    engine = serve(AutoScale(dict.fromkeys(scene("social").options, 1.0), RATE / 4, 1), 2 * IDLE + 60)
    times = [now for now, _ in engine.prices]
    sizes = [each for _, each in engine.prices]
    falls = [now for now, before, after in zip(times[1:], sizes, sizes[1:], strict=False) if after < before]
    assert all(now >= IDLE for now in falls)


@pytest.mark.parametrize("name", [*STRATEGIES, PARD, f"{OURS}, 0.5", "plan + autoscale, 2"])
def test_every_strategy_serves_a_rise(name: str) -> None:
    live = np.concatenate([gamma(RATE, 1, 20, 1), 20 + gamma(2 * RATE, 1, 20, 2)])
    setup = Setup(scene("image", "cpu", "k80"), gamma(RATE, 1, 60, 0), live)
    found = play(name, setup)
    assert found is not None
    assert 0 <= found.misses <= 1
    assert found.cost > 0
    if name in {"plan alone", "cg-mean", "cg-peak", "oracle plan"}:
        assert found.orders == 0
    if name == "oracle plan":
        assert found.misses <= 0.01


def test_a_trace_is_scaled_to_a_rate_and_a_step_triples_the_second_half_of_what_is_served() -> None:
    even, stepped = (recorded.setup_of(name, 10.0, 1) for name in ("steady", "steady+step"))
    whole = len(even.sample) + len(even.live)
    assert whole == pytest.approx(10.0 * (recorded.SAMPLE + recorded.LIVE), rel=0.02)
    assert (even.sample == stepped.sample).all()
    before, after = np.histogram(stepped.live, 2, (0, recorded.LIVE))[0]
    assert after == pytest.approx(3 * before, rel=0.05)


def test_the_pipelines_that_are_served_live_are_valid(tmp_path, monkeypatch):
    monkeypatch.setattr(served_live.profile, "main", lambda *_args, **_more: None)
    cases = list(served_live._cases(tmp_path))
    for case in cases:
        PipelineSpec.model_validate(yaml.safe_load(case.file.read_text("utf-8")))
    assert {case.name for case in cases} == {*served_live.CHOICES, *served_live._REAL}
