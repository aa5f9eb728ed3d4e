"""A simulation's result as a page's charts take it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.pages.charts import RunSeries
from agents.pages.visits import Visits, observed
from producers.report import PREDICTION

if TYPE_CHECKING:
    from agents.sim.observe import Observer
    from agents.sim.result import SimulationResult


def series(result: SimulationResult, observer: Observer) -> tuple[RunSeries, list[str], Visits]:
    """What became of each query, no notes, and the visits that the observer followed."""
    lost_at = [""] * len(result.due)
    for stage, log in observer.stages.items():
        for index in log.drops:
            lost_at[index] = lost_at[index] or stage
    run = RunSeries(result.due, result.finished - result.due, result.kind == PREDICTION, lost_at, result.slo)
    return run, [], observed(observer, result.due)
