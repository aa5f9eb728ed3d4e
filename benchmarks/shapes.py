"""Workloads like those of PARD's evaluation, made from a seed: how the rate of requests moves, second by second.

The paper replays the Wikipedia (CV .47), Twitter (1.0) and Azure Functions (1.3) traces, which are not ours to ship.
Ours have the same coefficient of variation of the rate per second, exactly, and the form that one expects of such
traffic: slow waves, waves with sudden crowds that drain away, short and violent spikes. They are stand-ins: a figure
from them may be compared with the paper's in its kind, not to the last digit. Within a second arrivals are uniform, so
together with the Poisson counts they are a Poisson process of that rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from spillway.lineage.errors import UsageError
from spillway.producers.load import schedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Series = NDArray[np.float64]

RATE = 150.0  # requests a second in the mean
_CLOSE = 1e-9


@dataclass(frozen=True, slots=True)
class Shape:
    """A form of traffic: positive levels per second from a generator, and the variation that they are brought to."""

    about: str
    cv: float
    level: Callable[[int, np.random.Generator], Series]

    def rates(self, seconds: int, seed: int, cv: float | None = None) -> Series:
        """Requests a second in each of `seconds`, of mean `RATE` and coefficient of variation `cv`."""
        rng = np.random.default_rng((seed, 0x7261))
        return RATE * varied(self.level(seconds, rng), self.cv if cv is None else cv)

    def between(self, low: float, high: float, seconds: int, seed: int) -> list[float]:
        """Requests a second in each of `seconds`, brought to lie between two rates."""
        rates = self.rates(seconds, seed)
        return list(low + (rates - rates.min()) / (rates.max() - rates.min()) * (high - low))

    def arrivals(self, seconds: int, seed: int, cv: float | None = None) -> Series:
        """Sorted times of the requests. Another seed makes another trace of the same form."""
        rng = _arriving(seed)
        return schedule.from_counts(np.arange(seconds), rng.poisson(self.rates(seconds, seed, cv)), rng)

    def counts(self, seconds: int, seed: int) -> NDArray[np.int64]:
        """How many of these fall into each second."""
        return _arriving(seed).poisson(self.rates(seconds, seed))


def _arriving(seed: int) -> np.random.Generator:
    return np.random.default_rng((seed, 0x6172))


def varied(level: Series, cv: float) -> Series:
    """Raise positive levels to the power at which their coefficient of variation is `cv`; the mean becomes 1.

    A power keeps the order and the times of peaks and makes them higher or lower. Raises UsageError where no power
    gives that variation, as over too few seconds.
    """
    if cv <= 0:
        return np.ones_like(level)
    logs = np.log(level) - np.log(level).max()

    def variation(power: float) -> float:
        powered = np.exp(power * logs)
        return float(powered.std() / powered.mean())

    low, high = 0.0, 1.0
    while variation(high) < cv:
        high *= 2
        if high > 1e3:
            raise UsageError(f"{len(level)} seconds are too few for a coefficient of variation of {cv}")
    while high - low > _CLOSE:
        middle = (low + high) / 2
        low, high = (low, middle) if variation(middle) >= cv else (middle, high)
    powered = np.exp(high * logs)
    return np.asarray(powered / powered.mean())


def _noise(seconds: int, rng: np.random.Generator, memory: float) -> Series:
    """Normal noise of variance 1 that forgets within `memory` seconds."""
    keep = np.exp(-1 / memory)
    noise = np.empty(seconds)
    last = rng.standard_normal()
    for second, step in enumerate(rng.standard_normal(seconds)):
        last = keep * last + np.sqrt(1 - keep**2) * step
        noise[second] = last
    return noise


def _bursts(seconds: int, rng: np.random.Generator, every: float, drain: float, height: float) -> Series:
    """Sudden crowds about every so many seconds, that drain away with time constant `drain`; heights vary."""
    count = max(1, round(seconds / every))
    starts = np.sort(rng.integers(0, seconds, count))
    heights = height * rng.lognormal(0.0, 0.4, count)
    since = np.arange(seconds)[:, None] - starts[None, :]
    decays = np.where(since >= 0, np.exp(-np.maximum(since, 0) / drain), 0.0)
    return np.asarray(decays @ heights)


def _waves(seconds: int, rng: np.random.Generator) -> Series:
    at = np.arange(seconds) / seconds
    day = np.sin(2 * np.pi * (2 * at + rng.random()))
    hours = np.sin(2 * np.pi * (7 * at + rng.random()))
    return np.asarray(np.exp(0.5 * day + 0.15 * hours + 0.08 * _noise(seconds, rng, 10.0)))


def _crowds(seconds: int, rng: np.random.Generator) -> Series:
    calm = np.exp(0.25 * np.sin(2 * np.pi * (np.arange(seconds) / seconds + rng.random())))
    return np.asarray(calm * np.exp(0.15 * _noise(seconds, rng, 15.0)) + _bursts(seconds, rng, 50.0, 12.0, 3.0))


def _spikes(seconds: int, rng: np.random.Generator) -> Series:
    return np.asarray(np.exp(0.35 * _noise(seconds, rng, 8.0)) + _bursts(seconds, rng, 25.0, 4.0, 5.0))


SHAPES: dict[str, Shape] = {
    "wiki-like": Shape("slow waves, as of the Wikipedia trace", 0.47, _waves),
    "tweet-like": Shape("sudden crowds that drain away, as of the Twitter trace", 1.0, _crowds),
    "azure-like": Shape("short, violent spikes, as of the Azure Functions trace", 1.3, _spikes),
}
