"""A live load's result as a page's charts take it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.pages.run_series import RunSeries
from agents.pages.visits import Visits, told
from producers.report import PREDICTION

if TYPE_CHECKING:
    from producers.load.tally import LoadResult
    from producers.load.witness import Witness
    from topology.routing import Graph


def series(result: LoadResult, witness: Witness, graph: Graph, slo: float) -> tuple[RunSeries, list[str], Visits]:
    """What became of each query, no notes, and the visits that outcomes told of. `slo` in seconds."""
    latency = result.finished - result.due
    lost_at = [witness.lost_at.get(index, "") for index in range(len(result.due))]
    run = RunSeries(result.due, latency, result.kind == PREDICTION, lost_at, slo)
    before = {stage: graph.predecessors[stage] for stage in graph.order}
    return run, [], told(witness.timings, latency, before)
