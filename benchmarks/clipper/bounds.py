"""Batch limits of a worker that is always busy, in virtual time: batches beyond the objective, beside fixed limits."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.clipper.front import OBJECTIVE
from benchmarks.output import Table, median_spread
from spillway.agents.core.limits import Aimd, Quantile

if TYPE_CHECKING:
    from collections.abc import Callable

    Durations = Callable[[int, random.Random], float]

BOUNDS: Final[dict[type[Aimd | Quantile], float]] = {
    Quantile: 0.02,
    Aimd: 0.05,
}  # more of the batches may be beyond than of those of one query
_PARTS: Final = 10  # of a run: the first are not counted
_SETTLED: Final = 3
_DRIFTS: Final[dict[str, Callable[[float], float]]] = {
    "": lambda _: 1.0,
    ", twice as slow by and by": lambda at: 1.0 + at,
    ", twice as fast at once": lambda at: 2.0 if at < 0.5 else 1.0,
}


def _noisy(base: float, each: float, pauses: float = 0.0) -> Durations:
    def took(count: int, draw: random.Random) -> float:
        return (base + each * count) * draw.lognormvariate(0.0, 0.02) + 0.015 * (draw.random() < pauses)

    return took


CASES: Final = {
    "15 ms + .5 ms n": (_noisy(0.015, 0.0005), 64),
    "10 ms + 5 us n, 3 % 15 ms longer": (_noisy(0.010, 5e-6, 0.03), 4_096),
    "2 ms + .1 ms n": (_noisy(0.002, 0.0001), 4_096),
}


def run(
    took: Durations, drift: Callable[[float], float], limit: Aimd | Quantile | int, seed: int, seconds: float
) -> tuple[float, float]:
    """The share of full batches beyond the objective, the mean over parts of the run, and queries a second."""
    draw, now = random.Random(seed), 0.0
    batches, beyond, queries, spent = np.zeros(_PARTS), np.zeros(_PARTS), 0, 0.0
    while now < seconds:
        size, part = limit if isinstance(limit, int) else limit.size, int(now / seconds * _PARTS)
        each = took(size, draw) * drift(now / seconds)
        batches[part] += 1
        beyond[part] += each > OBJECTIVE
        if part >= _SETTLED:
            queries, spent = queries + size, spent + each
        if not isinstance(limit, int):
            limit.learn(size, each)
        now += each
    return float((beyond / np.maximum(batches, 1))[_SETTLED:].mean()), queries / spent


def bounds(repeats: int, seconds: float) -> Table:
    """Both limits beside the best fixed one that keeps the same bound, else the one that is beyond least."""
    rows = []
    for case, (took, most) in CASES.items():
        for drift, pace in _DRIFTS.items():
            sizes = sorted({min(most, int(1.2**power)) for power in range(48)})
            fixed = [run(took, pace, size, 0, seconds) for size in sizes]
            for kind, bound in BOUNDS.items():
                kept = [rate for share, rate in fixed if share <= fixed[0][0] + bound]
                runs = [run(took, pace, kind(OBJECTIVE, most), seed, seconds) for seed in range(repeats)]
                over = median_spread([100 * (share - fixed[0][0]) for share, _ in runs], "{:+.1f}")
                rates = median_spread([rate / max(kept) for _, rate in runs], "{:.2f}")
                rows.append([case + drift, kind.__name__.lower(), f"{100 * fixed[0][0]:.1f}", over, rates])
    return Table(
        "Batches beyond 20 ms, and queries a second beside the best fixed limit that keeps the same bound",
        ("a batch of n takes", "limit", "% beyond at n = 1", "points more", "of the best fixed"),
        rows,
        (f"Virtual time, {seconds:g} s, of which the last 7 tenths count. Bounds: 2 points (quantile), 5 (aimd).",),
    )
