"""How long a batch of n takes: as profiled, or as lately measured."""

from __future__ import annotations

from typing import Protocol


class Duration(Protocol):
    """Expected seconds of a batch of n; learns from what is measured, where it learns at all."""

    def __call__(self, count: int, /) -> float:
        """Return the expected seconds of a batch of `count` requests."""
        ...


class RunningEstimate:
    """Expected seconds of a batch of n from what was measured, newest first; starts from a profile if there is one.

    Keeps an exponentially weighted mean per batch size, and an exponentially weighted line alpha + beta * n for the
    sizes not seen yet. Before the first measurement and without a profile it expects 0 seconds.
    """

    __slots__ = ("_means", "_moments", "_profile", "_weight")

    def __init__(self, profile: Duration | None = None, weight: float = 0.1) -> None:
        self._profile = profile
        self._weight = weight
        self._means: dict[int, float] = {}
        # Exponentially weighted means of n, d, n * n, n * d over all sizes.
        self._moments: tuple[float, float, float, float] | None = None

    def __call__(self, count: int, /) -> float:
        """Return the expected seconds of a batch of `count` requests."""
        mean = self._means.get(count)
        if mean is not None:
            return mean
        if self._profile is not None:
            return self._profile(count)
        if self._moments is None:
            return 0.0
        n, d, nn, nd = self._moments
        spread = nn - n * n
        # One size alone gives no slope: it is then the best guess for every size.
        slope = max(0.0, (nd - n * d) / spread) if spread > 1e-9 else 0.0  # noqa: PLR2004
        return max(0.0, d + slope * (count - n))

    def observe(self, count: int, seconds: float) -> None:
        """Learn that a batch of `count` took `seconds`."""
        weight = self._weight
        mean = self._means.get(count)
        self._means[count] = seconds if mean is None else mean + weight * (seconds - mean)
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
