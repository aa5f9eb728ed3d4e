"""The strategies side by side on one trace: what each begins with, and how its sizes follow the load."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.inferline.scalers import AutoScale, Ds2, Lag, Tuned
from benchmarks.inferline.scene import SLO, repeated
from benchmarks.inferline.serving import served
from benchmarks.output import median_spread, times
from spillway.topology.capacity.envelope import envelope
from spillway.topology.capacity.planner import Choice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.inferline.scene import Scene, Times, Unit
    from benchmarks.inferline.serving import Outcome, Scaler
    from spillway.topology.capacity.plan import Plan
    from spillway.topology.capacity.planner import Config

    Started = tuple[Config, Scaler | None]

THESIS: Final = ("cpu", "k80")  # its hardware
EMULATED: Final = "Emulated hardware, virtual time, policy naive unless PARD is named; no hops."
OURS: Final = "ours (plan + tune)"
PAPER: Final = "plan + tune by `paper`"
BY_PARD: Final = ", policy pard"
PARD: Final = OURS + BY_PARD
DS2: Final = "ds2 every 10 s, halts 5 s"
COLUMNS: Final = ("strategy", "misses, %", "cost, $", "cost by ours", "orders an hour", "kept again after, s")


@dataclass
class Setup:
    """What the strategies are given: a sample to plan for, before the trace that they serve."""

    scene: Scene
    sample: Times
    live: Times
    slo: float = SLO
    seed: int = 0

    @cached_property
    def plan(self) -> Plan:
        return self.scene.plan(self.sample, self.slo)

    @property
    def config(self) -> Config:
        return self.scene.config(self.plan)


def units_for(setup: Setup, unit: Unit, *, peak: bool) -> Config:
    """CG-Peak's, the fullest window of one SLO, or CG-Mean's units."""
    sample, slo = setup.sample, setup.slo
    rate = envelope(sample, (slo,))[0] / slo if peak else len(sample) / float(sample[-1] - sample[0])
    return repeated(unit, rate)


def _coarse(*, peak: bool, scaled: bool) -> Callable[[Setup], Started]:
    def start(setup: Setup) -> Started:
        unit = setup.scene.unit(setup.slo)
        config = units_for(setup, unit, peak=peak)
        if not scaled:
            return config, None
        units = max(choice.workers for choice in config.values())
        while not setup.scene.within(config):
            units -= 1
            config = {name: choice._replace(workers=units) for name, choice in unit.config.items()}
        return config, AutoScale(dict.fromkeys(config, 1.0), unit.rate, units, setup.slo)

    return start


def _planned_autoscale(threshold: float) -> Callable[[Setup], Started]:
    """A unit is the plan by the workers of its largest stage."""

    def start(setup: Setup) -> Started:
        config = setup.config
        units = max(choice.workers for choice in config.values())
        per_unit = {name: choice.workers / units for name, choice in config.items()}
        return config, AutoScale(per_unit, threshold * setup.plan.trace.rate / units, units, setup.slo)

    return start


def _ds2(setup: Setup) -> Started:
    shares = setup.scene.estimator(setup.sample).shares
    rate = len(setup.sample) / float(setup.sample[-1])
    options = setup.scene.fastest("k80")
    counts = {name: ceil(rate * shares[name] / option.throughput(1)) for name, option in options.items()}
    return {name: Choice(option, counts[name], 1) for name, option in options.items()}, Ds2(5.0, 10.0)


STRATEGIES: Final[dict[str, Callable[[Setup], Started]]] = {
    OURS: lambda setup: (setup.config, Tuned(setup.plan)),
    PAPER: lambda setup: (setup.config, Tuned(setup.plan, "paper")),
    "plan alone": lambda setup: (setup.config, None),
    "oracle plan": lambda setup: (setup.scene.config(setup.scene.plan(setup.live, setup.slo)), None),
    "cg-mean": _coarse(peak=False, scaled=False),
    "cg-peak": _coarse(peak=True, scaled=False),
    "cg-mean + autoscale": _coarse(peak=False, scaled=True),
    "cg-peak + autoscale": _coarse(peak=True, scaled=True),
    "plan + autoscale": _planned_autoscale(1.0),
    "lag": lambda setup: (setup.config, Lag({name: stage.count for name, stage in setup.plan.stages.items()})),
    DS2: _ds2,
}


def play(name: str, setup: Setup) -> Outcome | None:
    """One strategy on one trace; None where the catalogue has too little for it.

    A number behind a comma is our tuner's `WAIT`, or AutoScale's threshold on the plan; `BY_PARD` may end the name.
    """
    plain = name.removesuffix(BY_PARD)
    which, _, number = plain.partition(", ")
    if plain in STRATEGIES:
        config, scaler = STRATEGIES[plain](setup)
    elif which == OURS:
        config, scaler = setup.config, Tuned(setup.plan, wait=float(number))
    else:
        config, scaler = _planned_autoscale(float(number))(setup)
    if not setup.scene.within(config):
        return None
    policy = "pard" if name.endswith(BY_PARD) else "naive"
    return served(setup.scene, config, setup.live, scaler, slo=setup.slo, seed=setup.seed, policy=policy)


def rows(names: Sequence[str], setups: Sequence[Setup]) -> list[list[str]]:
    """One for each strategy, ours first: medians, and from least to most over the traces."""
    made: list[list[str]] = []
    ours: list[float] = []
    for name in names:
        found = [each for setup in setups if (each := play(name, setup)) is not None]
        if len(found) < len(setups):
            made.append([name, "over capacity", "", "", "", ""])
            continue
        ours = ours or [each.cost for each in found]
        made.append([
            name,
            median_spread([100 * each.misses for each in found], "{:.2f}"),
            median_spread([each.cost for each in found], "{:.2f}"),
            times(float(np.median([each.cost / base for each, base in zip(found, ours, strict=True)]))),
            median_spread([each.orders / each.hours for each in found], "{:.0f}"),
            median_spread([_kept_again(each) for each in found], "{:.0f}"),
        ])  # fmt: skip
    return made


def _kept_again(outcome: Outcome) -> float:
    bins = (outcome.due // 10).astype(int)
    share = np.bincount(bins, outcome.late) / np.maximum(np.bincount(bins), 1)
    late = np.flatnonzero(share > 0.01) * 10.0 + 10
    return max(0.0, float(late[-1]) - 60) if len(late) else 0.0
