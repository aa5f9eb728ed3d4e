"""What there is to say of arrivals: rate, cv2 of the gaps; over scales, dispersion of counts and traffic envelope."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from spillway.lineage.errors import UsageError
from spillway.topology.capacity.envelope import envelope, windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROUNDING = 1e-9  # of a window: a time may be as much short of where it begins
_FEWEST = 10  # windows that a dispersion is told from


@dataclass(frozen=True, slots=True)
class Scale:
    """Windows of one length: variance by mean of their counts (None of fewer than ten), the most requests a second."""

    seconds: float
    dispersion: float | None
    envelope: float


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of arrivals from 0 to the last one. `cv2` is the gaps' variance by the square of their mean (1: Poisson)."""

    requests: int
    seconds: float
    rate: float
    cv2: float
    scales: tuple[Scale, ...]


def statistics(times: NDArray[np.float64], service: float) -> Statistics:
    """Of sorted times in seconds from 0; windows are `service` seconds, doubled up to 60 s (InferLine, section 4.5).

    Raises UsageError where the times are too few, or `service` is not within (0, 60].
    """
    gaps = np.diff(times)
    if not gaps.any():
        raise UsageError(
            f"{len(times)} requests at one time have no statistics: requests at two or more times are needed"
        )
    lengths = windows(service)
    scales = tuple(
        Scale(length, _dispersion(times, length), most / length)
        for length, most in zip(lengths, envelope(times, lengths), strict=True)
    )
    end = float(times[-1])
    return Statistics(len(times), end, len(times) / end, float(gaps.var() / gaps.mean() ** 2), scales)


def _dispersion(times: NDArray[np.float64], length: float) -> float | None:
    window = np.floor(times / length + _ROUNDING).astype(np.int64)
    whole = int(window[-1])  # windows; the last one is not full
    if whole < _FEWEST:
        return None
    counts = np.bincount(window, minlength=whole)[:whole]
    mean = float(counts.mean())
    return float(counts.var()) / mean if mean else None
