"""What a run found: who was good, what was wasted, and what each stage did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from array import array
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from benchmarks.rag.stations import Visit


@dataclass(slots=True)
class StageSums:
    """One stage's totals: counts, and sums of seconds."""

    received: int = 0
    served: int = 0
    dropped: int = 0
    queued: float = 0.0  # t_b - t_r
    waited: float = 0.0  # t_e - t_b
    executed: float = 0.0  # from t_e to the end, or to the first token where that is the outcome
    busy: float = 0.0  # of the accelerator, or of all threads

    def note(self, request: Visit, now: float) -> None:
        self.served += 1
        self.queued += request.entered - request.arrived
        self.waited += request.started - request.entered
        self.executed += now - request.started


@dataclass(frozen=True, slots=True)
class TokenResult:
    """One element per query, in order of arrival; seconds."""

    policy: str
    slo: float
    due: NDArray[np.float64]
    finished: NDArray[np.float64]  # nan: dropped
    charged: NDArray[np.float64]  # seconds of accelerators that were its own
    lost: list[str]  # the stage that dropped it first; "" where none did
    stages: Mapping[str, StageSums]

    @classmethod
    def build(
        cls,
        policy: str,
        slo: float,
        due: NDArray[np.float64],
        finished: array[float],
        charged: array[float],
        lost: list[str],
        stages: Mapping[str, StageSums],
    ) -> TokenResult:
        return cls(policy, slo, due, np.array(finished), np.array(charged), lost, stages)

    @property
    def good(self) -> NDArray[np.bool_]:
        return self.finished <= self.due + self.slo

    @property
    def drop_rate(self) -> float:
        return float(1.0 - self.good.mean())

    @property
    def late_rate(self) -> float:
        return float((~self.good & ~np.isnan(self.finished)).mean())

    @property
    def wasted(self) -> float:
        """The invalid rate: share of accelerator seconds spent on queries that were not good."""
        total = float(self.charged.sum())
        return float(self.charged[~self.good].sum()) / total if total else 0.0

    @property
    def goodput(self) -> float:
        """Good queries a second, over the time in which queries came."""
        span = float(self.due[-1] - self.due[0])
        return float(self.good.sum()) / span if span > 0 else float("inf")
