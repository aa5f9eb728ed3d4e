"""How long a batch of n takes: as profiled, or as lately measured. All durations are seconds.

Where there is a profile, what is expected is profile(n) times a ratio of measured to profiled durations: that of the
size, if it was run in the last 100 batches, else that of the stage over all sizes. Each begins at 1 (a size's, at the
stage's) and moves a tenth of the way to what a batch took. So the profile holds until there is evidence against it, a
device that is slower than it was is seen at all sizes, and a profile of the wrong shape is mended where batches show
it. One batch counts as at most twice, and at least half, of what was expected of it: a model's first call, or a pause
of the process, says little of the next batch. A lasting change is followed all the same, within about 25 batches of a
size for a factor of 2 and 50 for 10.

Without a profile there is nothing to doubt a measurement by: see `RunningEstimate`.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import Final, Protocol

_WEIGHT: Final = 0.1  # of the newest batch
_RECENT: Final = 100  # batches
_LATELY: Final = 5  # batches of a size
_MOST: Final = 2.0  # times what was expected


class Duration(Protocol):
    """Expected seconds of a batch of n; learns from what is measured, where it learns at all."""

    def __call__(self, count: int, /) -> float: ...


class ProfiledEstimate:
    """Expected seconds of a batch of n: the profile, corrected by what was measured."""

    def __init__(self, profile: Duration) -> None:
        self._profile = profile
        self._batches = 0
        self._stage = 1.0
        self._sizes: dict[int, tuple[float, int]] = {}  # ratio, and the number of its last batch

    def __call__(self, count: int, /) -> float:
        return self._profile(count) * self._ratio(count)

    def profiled(self, count: int) -> float:
        return self._profile(count)

    def observe(self, count: int, seconds: float) -> None:
        profiled = self._profile(count)
        if profiled <= 0:
            return  # it says nothing that could be corrected
        ratio = self._ratio(count)
        counted = min(max(seconds / profiled, ratio / _MOST), ratio * _MOST)
        self._batches += 1
        self._stage += _WEIGHT * (counted - self._stage)
        self._sizes[count] = (ratio + _WEIGHT * (counted - ratio), self._batches)

    def _ratio(self, count: int) -> float:
        ratio, last = self._sizes.get(count, (1.0, -_RECENT))
        return ratio if self._batches - last < _RECENT else self._stage


class RunningEstimate:
    """Expected seconds of a batch of n from what was measured, where there is no profile.

    Keeps an exponentially weighted mean per batch size, and an exponentially weighted line alpha + beta * n for the
    sizes not seen yet, up to the largest that was: drawn out from small batches to a size that never ran, noise would
    become a reason to drop. The first batch of all counts only until the second, as a model's first call is slow.
    Before the first measurement it expects 0 seconds.

    What was slow once must not keep a policy from finding out that it is not any more, where only a query a second is
    let through to see. So a size is expected to take at most what the longest of its last 5 batches took, and no longer
    than its queries take in smaller batches that were run since, one after the other.
    """

    def __init__(self, weight: float = _WEIGHT) -> None:
        self._weight = weight
        self._means: dict[int, float] = {}
        self._lately: dict[int, deque[float]] = {}  # by size: its last batches
        self._last: dict[int, int] = {}  # by size: the number of its last batch
        self._batches = 0
        self._expected: dict[int, float] = {}  # what was asked for since the last batch
        self._largest = 0
        self._first = True  # whether only the first batch, or none, was measured
        # Exponentially weighted means of n, d, n * n, n * d over all sizes.
        self._moments: tuple[float, float, float, float] | None = None

    def __call__(self, count: int, /) -> float:
        expected = self._expected.get(count)
        if expected is not None:
            return expected
        expected = self._means.get(count)
        if expected is None:
            expected = self._line(count)
        last = self._last.get(count, 0)
        for size, at in self._last.items():
            if size < count and at > last:
                expected = min(expected, -(-count // size) * self._means[size])
        self._expected[count] = expected
        return expected

    def _line(self, count: int) -> float:
        if self._moments is None:
            return 0.0
        n, d, nn, nd = self._moments
        count = min(count, self._largest)
        spread = nn - n * n
        # One size alone gives no slope: it is then the best guess for every size.
        slope = max(0.0, (nd - n * d) / spread) if spread > 1e-9 else 0.0  # noqa: PLR2004
        return max(0.0, d + slope * (count - n))

    def observe(self, count: int, seconds: float) -> None:
        if self._first and self._moments is not None:
            self._first = False
            self._means.clear()
            self._lately.clear()
            self._last.clear()
            self._moments = None
            self._largest = 0
        mean = self(count) if count in self._means else seconds
        self._expected.clear()
        self._batches += 1
        self._last[count] = self._batches
        self._largest = max(self._largest, count)
        weight = self._weight
        lately = self._lately.setdefault(count, deque([inf], _LATELY))
        lately.append(seconds)
        self._means[count] = min(mean + weight * (seconds - mean), max(lately))
        seen = (float(count), seconds, float(count * count), count * seconds)
        if self._moments is None:
            self._moments = seen
        else:
            n, d, nn, nd = self._moments
            self._moments = (
                n + weight * (seen[0] - n),
                d + weight * (seen[1] - d),
                nn + weight * (seen[2] - nn),
                nd + weight * (seen[3] - nd),
            )


def estimate_of(profile: Duration | None) -> ProfiledEstimate | RunningEstimate:
    return RunningEstimate() if profile is None else ProfiledEstimate(profile)
