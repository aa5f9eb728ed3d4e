"""How long a batch of n takes: as profiled, or as lately measured. All durations are seconds.

With a profile, a size is expected to take what was measured of it, if it was run in the last 100 batches, else what
the profile says times the ratio of measured to profiled durations over all sizes. Each begins at the profile and moves
a tenth of the way to what a batch took. So the profile holds until there is evidence against it, a device that is
slower than it was is seen at all sizes, and a profile of the wrong shape is mended where batches show it. One batch
counts as at most twice, and at least half, of what was expected of it: a model's first call, or a pause of the process,
says little of the next batch. A lasting change is followed all the same, within about 25 batches of a size for a factor
of 2 and 50 for 10.

Without a profile there is nothing to doubt a measurement by. A size is expected to take its exponentially weighted
mean, and one not seen yet what an exponentially weighted line alpha + beta * n says, drawn up to the largest that was
seen: drawn out from small batches to a size that never ran, noise would become a reason to drop. The first batch of all
counts only until the second, as a model's first call is slow. Before it, 0 seconds are expected.

What was slow once must not keep a policy from finding out that it is not any more, where only a query a second is let
through to see. So in either case a size is expected to take at most what the longest of its last 5 batches took, and no
longer than its queries take in smaller batches that were run since, one after the other.
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


class Estimate:
    """Expected seconds of a batch of n, of its profile and of what was measured."""

    def __init__(self, profile: Duration | None = None) -> None:
        self._profile = profile
        self._means: dict[int, float] = {}
        self._lately: dict[int, deque[float]] = {}  # by size: its last batches
        self._last: dict[int, int] = {}  # by size: the number of its last batch, in order
        self._batches = 0
        self._expected: dict[int, float] = {}  # what was asked for since the last batch
        self._ratio = 1.0  # of measured to profiled, over all sizes
        self._line = _Line()

    def __call__(self, count: int, /) -> float:
        expected = self._expected.get(count)
        if expected is not None:
            return expected
        last = self._last.get(count, 0)
        if count in self._means and (self._profile is None or self._batches - last < _RECENT):
            expected = self._means[count]
        elif self._profile is None:
            expected = self._line.at(count)
        else:
            expected = self._profile(count) * self._ratio
        for size in reversed(self._last):  # the newest first
            if self._last[size] <= last:
                break
            if size < count:
                expected = min(expected, -(-count // size) * self._means[size])
        self._expected[count] = expected
        return expected

    def observe(self, count: int, seconds: float) -> None:
        """Learn what a batch took."""
        if self._profile is None:
            if self._batches == 1:
                self._forget()
            expected = (self._expected.get(count) or self(count)) if count in self._means else seconds
            counted = seconds
            self._line.add(count, seconds)
        else:
            profiled, expected = self._profile(count), self(count)
            if profiled <= 0:
                return  # it says nothing that could be corrected
            counted = min(max(seconds, expected / _MOST), expected * _MOST)
            self._ratio += _WEIGHT * (counted / profiled - self._ratio)
        lately = self._lately.setdefault(count, deque([inf], _LATELY))
        lately.append(seconds)
        self._expected.clear()
        self._batches += 1
        self._last.pop(count, None)
        self._last[count] = self._batches
        self._means[count] = min(expected + _WEIGHT * (counted - expected), max(lately))

    def _forget(self) -> None:
        self._means.clear()
        self._lately.clear()
        self._last.clear()
        self._line = _Line()


class _Line:
    """An exponentially weighted line of seconds over batch sizes."""

    def __init__(self) -> None:
        self._largest = 0
        self._moments: list[float] | None = None  # means of n, d, n * n, n * d

    def at(self, count: int) -> float:
        if self._moments is None:
            return 0.0
        n, d, nn, nd = self._moments
        count = min(count, self._largest)
        spread = nn - n * n
        # One size alone gives no slope: it is then the best guess for every size.
        slope = max(0.0, (nd - n * d) / spread) if spread > 1e-9 else 0.0  # noqa: PLR2004
        return max(0.0, d + slope * (count - n))

    def add(self, count: int, seconds: float) -> None:
        self._largest = max(self._largest, count)
        seen = [float(count), seconds, float(count * count), count * seconds]
        moments = self._moments
        if moments is None:
            self._moments = seen
            return
        for place, new in enumerate(seen):
            moments[place] += _WEIGHT * (new - moments[place])
