"""What plans cost beside coarse-grained sizes: units of the whole pipeline, one worker of each stage (Figure 4.5)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil
from statistics import median
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.inferline.scene import CHOICES, EMULATED, SLO, THESIS, gamma, price, scene, sizings
from benchmarks.inferline.serving import served
from benchmarks.output import Table, median_spread, times
from spillway.topology.capacity.envelope import envelope
from spillway.topology.capacity.planner import Choice, p99_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.inferline.scene import Scene, Times
    from spillway.topology.capacity.hardware import Option
    from spillway.topology.capacity.planner import Config

SAMPLE: Final = 300.0  # seconds planned for, and as many of another trace served
_BOX: Final = 20.0  # seconds of even traffic by which a pipeline is profiled as a whole
_HALVINGS: Final = 10


@dataclass(frozen=True, slots=True)
class Unit:
    """A pipeline as a single black box: one worker of each stage, and the queries a second that it serves in time."""

    config: Mapping[str, Choice]
    rate: float

    def for_peak(self, sample: Times) -> Config:
        """CG-Peak's: as many units as serve the fullest window of one SLO."""
        units = ceil(envelope(sample, (SLO,))[0] / SLO / self.rate)
        return {name: choice._replace(workers=units) for name, choice in self.config.items()}


@cache
def unit(name: str) -> Unit:
    """The coarse-grained unit of a pipeline (4.6): the one batch limit, on the hardware that is cheapest for a query.

    Its rate is the most of evenly spaced queries whose p99 is within the SLO; so it bears all batch limits that can
    keep the SLO, and, in its favour, all tiers of hardware.
    """
    of, units = scene(name, *THESIS), []
    for kind in of.catalogue.kinds:
        options = _fastest(of, kind)
        for batch in (1, 2, 4, 8, 16, 32):
            config = {stage: Choice(each, 1, min(batch, each.largest)) for stage, each in options.items()}
            rate = _rate(of, config)
            if rate:
                units.append(Unit(config, rate))
    return min(units, key=lambda each: price(each.config) / each.rate)


def _fastest(of: Scene, kind: str) -> dict[str, Option]:
    """Each stage on its fastest hardware that is no dearer than a kind; where it has none, on its cheapest."""
    most, found = of.catalogue.kinds[kind].price, {}
    for stage, options in of.options.items():
        able = [option for option in options if option.price <= most] or [options[-1]]
        found[stage] = min(able, key=lambda option: option.durations[0])
    return found


def _rate(of: Scene, config: Mapping[str, Choice]) -> float:
    low, high = 0.0, 2 * max(choice.option.throughput(choice.batch) for choice in config.values())
    for _ in range(_HALVINGS):
        rate = (low + high) / 2
        latencies = of.estimator(np.arange(0.0, _BOX, 1 / rate))(sizings(config))
        assert latencies is not None  # any number may be late
        low, high = (rate, high) if p99_of(latencies) <= SLO else (low, rate)
    return low


def coarse(repeats: int) -> Table:
    """Figure 4.5, CG-Peak's; and the cascade's plans of Figure 4.13."""
    made = [_row(name, cv2, rate, repeats) for name in CHOICES for cv2 in (1, 4) for rate in (50, 150, 300)]
    columns = ("pipeline", "cv2", "queries/s", "plan, $/h", "misses, %", "cg-peak, $/h", "misses, %", "cg-peak by plan")
    notes = (
        "Thesis: up to 7.6 times cheaper, near-zero misses.",
        f"Misses are of another trace of the plan's kind. {repeats} traces of each: median (least to most).",
        EMULATED,
    )
    return Table(f"Plans against coarse-grained ones, SLO {1e3 * SLO:g} ms (Figure 4.5)", columns, made, notes)


def _row(name: str, cv2: float, rate: float, repeats: int) -> list[str]:
    of = scene(name, *THESIS)
    samples = [gamma(rate, cv2, SAMPLE, 2 * seed) for seed in range(repeats)]
    lives = [gamma(rate, cv2, SAMPLE, 2 * seed + 1) for seed in range(repeats)]
    configs = [of.config(of.plan(each)) for each in samples], [unit(name).for_peak(each) for each in samples]
    costs = [[price(each) for each in mine] for mine in configs]
    misses = [
        [served(of, *each, seed=seed).misses for seed, each in enumerate(zip(mine, lives, strict=True))]
        for mine in configs
    ]
    cells = [median_spread(each, "{:.2f}") for pair in zip(costs, misses, strict=True) for each in pair]
    return [name, str(cv2), str(rate), *cells, times(median(costs[1]) / median(costs[0]))]
