"""What became of the same queries in one configuration, recorded or simulated, reckoned alike for both.

Counted are the queries whose recorded outcome is known and is no failure (a model's failure is nothing that a policy
or a size changes). Good is a prediction within the query's own budget. Durations in seconds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.producers.report import DROPPED, PREDICTION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Fates:
    """One element per counted query."""

    due: NDArray[np.float64]
    latency: NDArray[np.float64]  # of predictions
    kind: NDArray[Any]
    budget: NDArray[np.float64]
    spent: NDArray[np.float64]

    @property
    def predicted(self) -> NDArray[np.bool_]:
        return np.asarray(self.kind == PREDICTION)

    @property
    def good(self) -> NDArray[np.bool_]:
        return self.predicted & (self.latency <= self.budget)


@dataclass(frozen=True, slots=True)
class Figures:
    """One row of the comparison. Rates are shares of the counted queries; times are None without a prediction."""

    requests: int
    good: int
    dropped: int
    late: int
    drop_rate: float  # what is not good
    goodput_rps: float  # good ones per second
    p50: float | None
    p90: float | None
    p99: float | None
    invalid_rate: float  # share of execution spent on what did not become good
    drops_per_stage: Mapping[str, int]
    mean_batch: Mapping[str, float]  # by stage

    def as_json(self) -> dict[str, Any]:
        """As a JSON object; times in milliseconds."""
        told = asdict(self)
        for name in ("p50", "p90", "p99"):
            seconds = told.pop(name)
            told[f"{name}_ms"] = None if seconds is None else round(1000 * seconds, 3)
        return told


def figures(fates: Fates, drops: Mapping[str, int], batches: Mapping[str, float]) -> Figures:
    requests = len(fates.due)
    good = fates.good
    latency = fates.latency[fates.predicted]
    p50, p90, p99 = np.quantile(latency, (0.5, 0.9, 0.99)).tolist() if len(latency) else (None, None, None)
    total = float(fates.spent.sum())
    span = float(np.ptp(fates.due)) if requests else 0.0
    return Figures(
        requests=requests,
        good=int(good.sum()),
        dropped=int((fates.kind == DROPPED).sum()),
        late=int((fates.predicted & ~good).sum()),
        drop_rate=1 - int(good.sum()) / requests if requests else 0.0,
        goodput_rps=int(good.sum()) / span if span > 0 else 0.0,
        p50=p50,
        p90=p90,
        p99=p99,
        invalid_rate=max(0.0, 1 - float(fates.spent[good].sum()) / total) if total > 0 else 0.0,
        drops_per_stage=dict(drops),
        mean_batch=dict(batches),
    )
