"""Arrivals to compare policies on: recorded traces that lie beside the repository, and generated ones, all seeded.

A generated trace is a rate per second (`benchmarks.shapes` has three more), or gaps drawn from a gamma
distribution. All have about `RATE` requests a second in the mean; the comparison scales them to the load that it wants.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.pard.cases import arrivals_of, real_traces
from benchmarks.shapes import RATE, SHAPES
from spillway.producers.load import schedule
from spillway.producers.load.traces import Counts, read_trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Rates = Callable[[int, np.random.Generator], NDArray[np.float64]]


def _switching(seconds: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """A Markov-modulated Poisson process: calm for 12 s, three times the rate for 3 s, in the mean."""
    high = np.zeros(seconds, bool)
    for second in range(1, seconds):
        leaves = rng.random() < (1 / 3 if high[second - 1] else 1 / 12)
        high[second] = high[second - 1] ^ leaves
    return np.where(high, 3.0, 1.0)


def _flash(seconds: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """One crowd of five times the rate that comes within a second and drains away."""
    since = np.arange(seconds) - int(seconds * rng.uniform(0.3, 0.6))
    return 1.0 + np.where(since >= 0, 4.0 * np.exp(-np.maximum(since, 0) / 8.0), 0.0)


def _ramp(seconds: int, rng: np.random.Generator) -> NDArray[np.float64]:
    return np.linspace(1.0, 3.0 + 0.2 * rng.random(), seconds)


def _on_off(seconds: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Two seconds on, three seconds nearly off."""
    return np.where((np.arange(seconds) + int(rng.integers(0, 5))) % 5 < 2, 2.2, 0.2)


_RATES: dict[str, Rates] = {"mmpp": _switching, "flash-crowd": _flash, "ramp": _ramp, "on-off": _on_off}
_GAPS = {"poisson": 1.0, "gamma-2": 2.0, "gamma-3": 3.0}  # the coefficient of variation of the gaps
GENERATED = (*SHAPES, "bursty", *_RATES, *_GAPS)
_BURSTY = Path(__file__).parents[1] / "traces" / "bursty.csv"


def traces() -> tuple[str, ...]:
    return (*GENERATED, *real_traces())


def arrivals(trace: str, seconds: int, seed: int = 0) -> NDArray[np.float64]:
    """Sorted times of the requests of a trace. Raises UsageError where there is none of that name."""
    rng = np.random.default_rng((seed, 0x706F))
    if trace in _GAPS:
        return schedule.gamma(RATE, _GAPS[trace], seconds, rng)
    if trace in _RATES:
        levels = _RATES[trace](seconds, rng)
        return schedule.from_counts(np.arange(seconds), rng.poisson(RATE * levels / levels.mean()), rng)
    if trace == "bursty":
        whole = read_trace(_BURSTY)
        assert isinstance(whole, Counts)  # it is in the repository
        return schedule.from_counts(np.arange(seconds), np.resize(whole.requests, seconds), rng)
    return arrivals_of(trace, seed, seconds)
