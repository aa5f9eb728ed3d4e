"""The recent mean of the queueing delay: PARD's linearly weighted window (section 4.2; its length, section 5.4).

What was seen between two synchronisations is one bucket. A bucket weighs 1 when it is closed and linearly less until,
`length` seconds later, it weighs nothing. At one synchronisation a second and five seconds that is 5, 4, 3, 2, 1, the
newest first; it holds for every other period.
"""

from __future__ import annotations

from collections import deque

DEFAULT = 5.0  # seconds
# The paper's guideline by the workload's coefficient of variation: below the first, the middle of the second.
_GUIDELINE = ((0.5, 6.0), (1.0, 4.0), (float("inf"), 2.0))
_HISTORY = 300.0  # seconds of arrivals by which the workload is known
_LEAST = 30.0  # seconds of them before anything is said


class RecentMean:
    """Mean of what was seen, by the seconds since its bucket was closed."""

    def __init__(self, length: float = DEFAULT) -> None:
        self.length = length
        self._buckets: deque[tuple[float, float, int]] = deque()  # (closed at, sum, count)

    def close(self, now: float, total: float, count: int) -> None:
        buckets = self._buckets
        if count:
            buckets.append((now, total, count))
        while buckets and now - buckets[0][0] >= self.length:
            buckets.popleft()

    def mean(self, now: float) -> tuple[float, float]:
        """Give the mean, and the weight of all that it is of; (0, 0) where nothing was seen."""
        weighted = weight = 0.0
        gone, each = now - self.length, 1.0 / self.length
        for closed, total, count in self._buckets:
            share = (closed - gone) * each
            weighted += share * total
            weight += share * count
        return (weighted / weight, weight) if weight > 0 else (0.0, 0.0)


class WorkloadVariation:
    """How much the arrival rate varies: the coefficient of variation of the arrivals by second.

    Poisson arrivals of a steady rate vary too, the more, the lower the rate; that part is taken off, so that a quiet
    stage is not taken for a bursty one.
    """

    def __init__(self) -> None:
        self._counts: deque[float] = deque(maxlen=int(_HISTORY))
        self._opened = 0.0
        self._seconds = 0.0

    def see(self, arrivals: int, span: float) -> None:
        self._opened += arrivals
        self._seconds += span
        if self._seconds >= 1.0 - 1e-6:
            self._counts.append(self._opened / self._seconds)
            self._opened = self._seconds = 0.0

    @property
    def coefficient(self) -> float | None:
        """Give it once enough was seen."""
        counts = self._counts
        if len(counts) < _LEAST:
            return None
        mean = sum(counts) / len(counts)
        if mean <= 0:
            return None
        variance = sum((count - mean) ** 2 for count in counts) / len(counts)
        return float(max(0.0, variance - mean) ** 0.5 / mean)


def guided(variation: float | None) -> float:
    """Give the window's length in seconds that the paper advises for a workload's coefficient of variation."""
    if variation is None:
        return DEFAULT
    return next(length for below, length in _GUIDELINE if variation < below)
