"""What a simulation found: how and when each request ended, and what each stage did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from producers.report import PREDICTION, Report, StageTotals

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """One element per request, in order of arrival; times in seconds of the simulated clock."""

    pipeline: str
    policy: str
    period: float  # of the policies' synchronisation
    slo: float
    due: NDArray[np.float64]
    finished: NDArray[np.float64]
    kind: NDArray[np.uint8]  # as `producers.report` names them
    spent: NDArray[np.float64]  # seconds of execution, a batch's time divided over its requests
    stages: Mapping[str, StageTotals]

    @property
    def good(self) -> int:
        return int(((self.kind == PREDICTION) & (self.finished - self.due <= self.slo)).sum())

    @property
    def visits(self) -> int:
        return sum(totals.queries for totals in self.stages.values())

    def report(self, trace: str, duration: float | None = None) -> Report:
        """Judge the run. `duration` is that of the load; without it, the time of the last arrival."""
        return Report.build(
            pipeline=self.pipeline,
            policy=self.policy,
            trace=trace,
            slo=self.slo,
            duration=float(self.due[-1]) if duration is None else duration,
            due=self.due,
            finished=self.finished,
            kind=self.kind,
            spent=self.spent,
            stages=self.stages,
            emulated=True,
        )
