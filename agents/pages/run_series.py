"""What a page of a run is drawn from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class RunSeries:
    """What happened to each query of a run, in the order in which they were due.

    `due`: seconds from the run's start. `latency`: seconds from due to outcome, NaN where none came. `prediction`:
    whether the outcome was one. `stage`: where a dropped or failed one ended, "" otherwise. All have the same length.
    """

    due: NDArray[np.float64]
    latency: NDArray[np.float64]
    prediction: NDArray[np.bool_]
    stage: list[str]
    slo: float

    @property
    def good(self) -> NDArray[np.bool_]:
        return self.prediction & (self.latency <= self.slo)
