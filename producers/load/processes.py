"""Arrival processes whose rate and burstiness move: gamma renewal, Markov-modulated, diurnal, and sums of them.

The workloads of InferLine (thesis, section 4.6): gaps between queries are gamma-distributed, of mean 1/rate and
cv2 = variance / mean^2, which the thesis calls CV (1 is a Poisson process, 0 evenly spaced), and move from one gamma
distribution to another over a transition time. Pure: the same generator gives the same arrivals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from spillway.lineage.errors import UsageError
from spillway.producers.load.schedule import MOST

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Times = NDArray[np.float64]

_BLOCK: Final = 256  # gaps drawn at once
_EVEN: Final = 1e-9  # a cv2 up to this is none
_STEPS: Final = 256  # straight pieces of a day's curve


class Leg(NamedTuple):
    """A stretch of time over which the rate (a second) and cv2 go from one value to another on straight lines."""

    seconds: float
    rate: tuple[float, float]
    cv2: tuple[float, float] = (1.0, 1.0)


def arrivals(legs: Sequence[Leg], rng: np.random.Generator) -> Times:
    """One renewal process over all `legs`, sorted, in seconds from their start.

    Its clock runs as fast as the rate, so the expected number of arrivals in any time is the integral of the rate. On
    that clock gaps have mean 1 and the cv2 of their beginning, which within a leg is foretold for 256 gaps at a time.
    Raises UsageError where nothing can arrive, or more than 1e8 queries would.
    """
    course = _Course(legs)
    if not 0 < course.total <= MOST:
        raise UsageError(f"{course.total:g} arrivals are expected: there must be more than 0 and at most {MOST:g}")
    steps: Times = np.arange(_BLOCK, dtype=np.float64)
    passed, chunks = 0.0, []
    while passed < course.total:
        end = course.end(passed)
        cv2 = course.cv2(np.minimum(passed + steps, np.nextafter(end, 0)))
        gaps, random = np.ones(_BLOCK), cv2 > _EVEN
        gaps[random] = rng.gamma(1 / cv2[random], cv2[random])
        clock = passed + np.cumsum(gaps)
        chunks.append(clock[: 1 + np.searchsorted(clock, end)])  # the others begin in the next leg, and are its to draw
        passed = float(chunks[-1][-1])
    clock = np.concatenate(chunks)
    return np.sort(course.times(clock[clock < course.total]))  # equal ones may have been turned round by rounding


def mmpp(rates: Sequence[float], stays: Sequence[float], duration: float, rng: np.random.Generator) -> Iterator[Leg]:
    """A Markov-modulated Poisson process: state i has rate i, lasts stay i seconds on average (exponential).

    Any other state is as likely to be next. It begins in the steady state.
    """
    state = int(rng.choice(len(stays), p=np.divide(stays, sum(stays))))
    left = duration
    while left > 0:
        seconds = min(left, float(rng.exponential(stays[state])))
        yield Leg(seconds, (rates[state], rates[state]))
        left -= seconds
        state = (state + int(rng.integers(1, len(stays)))) % len(stays)


def diurnal(low: float, high: float, period: float, duration: float, cv2: tuple[float, float]) -> Iterator[Leg]:
    """A cosine from `low` to `high` and back in every `period`; cv2 moves over the whole `duration`."""
    edges = np.append(np.arange(0, duration, period / _STEPS), duration)
    rates = low + (high - low) * (1 - np.cos(2 * np.pi * edges / period)) / 2
    variations = np.interp(edges, (0, duration), cv2)
    for n, seconds in enumerate(np.diff(edges)):
        yield Leg(seconds, (rates[n], rates[n + 1]), (variations[n], variations[n + 1]))


class _Course:
    """The clock of a process: expected arrivals so far, for times and back."""

    def __init__(self, legs: Sequence[Leg]) -> None:
        self._seconds, rate, cv2 = (np.array(column, dtype=np.float64) for column in zip(*legs, strict=True))
        self._rate, self._rise = rate[:, 0], np.diff(rate)[:, 0]
        self._cv2, self._more = cv2[:, 0], np.diff(cv2)[:, 0]
        self._starts = np.cumsum(self._seconds) - self._seconds
        self._clock = np.append(0.0, np.cumsum(self._seconds * rate.mean(axis=1)))
        self.total = float(self._clock[-1])

    def times(self, clock: Times) -> Times:
        leg, seconds = self._find(clock)
        return self._starts[leg] + seconds

    def end(self, clock: float) -> float:
        """What the clock will read at the end of the leg in which it reads this."""
        return float(self._clock[np.searchsorted(self._clock, clock, side="right")])

    def cv2(self, clock: Times) -> Times:
        leg, seconds = self._find(clock)
        return self._cv2[leg] + self._more[leg] * seconds / self._seconds[leg]

    def _find(self, clock: Times) -> tuple[NDArray[np.intp], Times]:
        """The leg of each reading below `total`, and how many seconds of it have passed."""
        leg = np.searchsorted(self._clock, clock, side="right") - 1  # the last that begins there, so none of rate 0
        passed, rate, length = clock - self._clock[leg], self._rate[leg], self._seconds[leg]
        end = np.sqrt(np.maximum(0.0, rate**2 + 2 * passed * self._rise[leg] / length))  # the rate then
        seconds = 2 * passed / np.maximum(rate + end, np.finfo(float).tiny)
        return leg, np.minimum(seconds, length)
