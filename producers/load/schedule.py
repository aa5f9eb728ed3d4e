"""Arrival processes: when the requests of a load are due, in seconds from its start.

Pure: every function returns a sorted float64 array of due times in [0, duration) and draws from the generator that it
is given, so the same seed gives the same load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from spillway.lineage.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Times = NDArray[np.float64]

MOST: Final = 1e8  # arrivals of one stream


def constant(rate: float, duration: float) -> Times:
    """`rate` requests a second, evenly spaced; the first is due at 0."""
    _check(rate, duration)
    count = int(np.ceil(rate * duration - 1e-9))
    return np.arange(count, dtype=np.float64) / rate


def poisson(rate: float, duration: float, rng: np.random.Generator) -> Times:
    return gamma(rate, 1.0, duration, rng)


def gamma(rate: float, cv: float, duration: float, rng: np.random.Generator) -> Times:
    """Independent gamma-distributed gaps of mean 1/rate and coefficient of variation `cv`; 0 is `constant`.

    The workload of InferLine, section 7: lambda and CV. Above 1 it is burstier than a Poisson process.
    """
    if not 0 <= cv < np.inf:
        raise UsageError(f"a coefficient of variation of {cv} is not possible: it must be 0 or more")
    _check(rate, duration, bursts=cv * cv / 2)  # the arrivals that its longest gap is made up for by
    if cv == 0:
        return constant(rate, duration)
    shape, scale = 1 / cv**2, cv**2 / rate
    chunks: list[Times] = []
    reached = 0.0
    while reached < duration:
        expected = (duration - reached) * rate
        gaps = rng.gamma(shape, scale, size=int(expected + 4 * cv * np.sqrt(expected)) + 16)
        chunk = reached + np.cumsum(gaps)
        chunks.append(chunk)
        reached = float(chunk[-1])
    times = np.concatenate(chunks)
    return times[times < duration]


def from_counts(seconds: ArrayLike, requests: ArrayLike, rng: np.random.Generator, scale: float = 1.0) -> Times:
    """So many `requests` in each of `seconds`, spread over the second uniformly at random.

    `scale` multiplies the counts; what is left after the comma carries over to the next second, so the total is right.
    """
    _check_scale(scale)
    starts = np.asarray(seconds, dtype=np.float64)
    exact = np.cumsum(np.asarray(requests, dtype=np.float64) * scale)
    _check_count(exact[-1] if len(exact) else 0.0)
    counts = np.diff(np.floor(exact + 1e-9), prepend=0.0).astype(np.int64)
    times = np.repeat(starts, counts)
    times += rng.random(len(times))
    times.sort()
    return times


def scaled(times: ArrayLike, scale: float, rng: np.random.Generator) -> Times:
    """`scale` times as many arrivals of the same shape: each is kept or repeated floor(scale) or ceil(scale) times.

    A repetition falls at random between its original and the next arrival, so that a denser load has no pairs.
    """
    _check_scale(scale)
    given = np.sort(np.asarray(times, dtype=np.float64))
    if scale == 1 or not len(given):
        return given
    _check_count(scale * len(given))
    whole = int(scale)
    counts = whole + (rng.random(len(given)) < scale - whole)
    gaps = np.diff(given, append=given[-1])
    repeated = np.repeat(given, counts)
    firsts = np.zeros(len(repeated), dtype=bool)
    firsts[(np.cumsum(counts) - counts)[counts > 0]] = True
    repeated += np.where(firsts, 0.0, rng.random(len(repeated))) * np.repeat(gaps, counts)
    repeated.sort()
    return repeated


def paced(times: ArrayLike, *, speed: float = 1.0, duration: float | None = None) -> Times:
    """The same arrivals `speed` times as fast, and of these the ones due before `duration` seconds."""
    if not 0 < speed < np.inf:
        raise UsageError(f"a speed of {speed} is not possible: it must be above 0")
    if duration is not None and not duration > 0:
        raise UsageError(f"a duration of {duration} s is not possible: it must be above 0")
    due = np.sort(np.asarray(times, dtype=np.float64)) / speed
    return due if duration is None else due[due < duration]


def _check(rate: float, duration: float, bursts: float = 0.0) -> None:
    if not 0 < rate < np.inf:
        raise UsageError(f"a rate of {rate} requests a second is not possible: it must be above 0")
    if not 0 < duration < np.inf:
        raise UsageError(f"a duration of {duration} s is not possible: it must be above 0")
    _check_count(rate * duration + bursts)


def _check_count(expected: float) -> None:
    if expected > MOST:
        raise UsageError(f"{expected:g} arrivals are expected: there may be at most {MOST:g}")


def _check_scale(scale: float) -> None:
    if not 0 < scale < np.inf:
        raise UsageError(f"a scale of {scale} is not possible: it must be above 0")
