"""A simulation's result as a page's charts take it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agents.pages.load_chart import StageLoad
from agents.pages.run_series import RunSeries
from agents.pages.visits import Visits, observed
from producers.report import PREDICTION

if TYPE_CHECKING:
    from agents.sim.observe import Observer, SimulationResult
    from topology.load import Pipeline


def series(result: SimulationResult, observer: Observer) -> tuple[RunSeries, list[str], Visits]:
    """What became of each query, no notes, and the visits that the observer followed."""
    lost_at = [""] * len(result.due)
    for stage, log in observer.stages.items():
        for index in log.drops:
            lost_at[index] = lost_at[index] or stage
    run = RunSeries(result.due, result.finished - result.due, result.kind == PREDICTION, lost_at, result.slo)
    return run, [], observed(observer, result.due)


def loads(pipeline: Pipeline, result: SimulationResult, observer: Observer) -> dict[str, StageLoad]:
    """How loaded each stage was, where its replicas told; its capacity is that of full batches, as profiled."""
    found = {}
    for stage in pipeline.spec.stages:
        ticks = [tick for tick in observer.ticks if tick.stage == stage.name]
        seconds = pipeline.durations[stage.name](stage.batch_size)
        if ticks and seconds > 0:
            capacity = result.stages[stage.name].instances * stage.batch_size / seconds
            rates = np.array([tick.arrival_rate for tick in ticks])
            at = np.array([tick.at for tick in ticks])
            found[stage.name] = StageLoad(at, rates / capacity, np.array([tick.hbf > 0.5 for tick in ticks]))  # noqa: PLR2004 - most
    return found
