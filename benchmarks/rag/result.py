"""What a run found: who was good, what was wasted, and where queries were dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class TokenResult:
    """One element per query, in order of arrival; seconds."""

    slo: float
    due: NDArray[np.float64]
    finished: NDArray[np.float64]  # nan: dropped
    charged: NDArray[np.float64]  # seconds of accelerators that were its own
    lost: list[str]  # the stage that dropped it first; "" where none did
    busy: Mapping[str, float]  # by stage: of the accelerator, or of all threads

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
