"""What a page of a run is drawn from: its queries, and their visits to stages, live or simulated.

A visit has three parts, those of PARD's eq. 2: queued (from arrival to entering a batch), waited (to the batch's
start), executed. One that ended in a drop was not executed. All durations in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from spillway.producers.recording.history import explained
from spillway.producers.report import PREDICTION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from spillway.agents.sim.observe import Observer, SimulationResult
    from spillway.lineage.message import StageTiming
    from spillway.producers.load.tally import LoadResult, Witness
    from spillway.topology.load import Pipeline
    from spillway.topology.routing import Graph


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


@dataclass(frozen=True, slots=True)
class Visits:
    """One element per visit; `stages` names the numbers in `stage`."""

    stages: tuple[str, ...]
    query: NDArray[np.int64]  # index
    stage: NDArray[np.int64]
    arrived: NDArray[np.float64]  # since the query was due
    queued: NDArray[np.float64]
    waited: NDArray[np.float64]
    executed: NDArray[np.float64]  # 0 where it was dropped

    def of(self, query: int) -> Visits:
        """The visits of one query, in order of arrival."""
        mine = np.flatnonzero(self.query == query)
        return self.take(mine[np.argsort(self.arrived[mine], kind="stable")])

    def take(self, which: NDArray[np.int64]) -> Visits:
        columns = (getattr(self, name)[which] for name in ("query", "stage", "arrived", "queued", "waited", "executed"))
        return Visits(self.stages, *columns)


def between(visits: Visits, latency: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The queries whose latency is known, and how long each was in no stage: on its hops. Branches run at once."""
    known = visits.take(np.flatnonzero(np.isfinite(latency[visits.query])))
    ends = known.arrived + known.queued + known.waited + known.executed
    inside: dict[int, float] = {}
    until: dict[int, float] = {}
    for place in np.argsort(known.arrived, kind="stable").tolist():
        query, begin, end = int(known.query[place]), float(known.arrived[place]), float(ends[place])
        begin = max(begin, until.get(query, begin))
        inside[query] = inside.get(query, 0.0) + max(0.0, end - begin)
        until[query] = max(until.get(query, end), end)
    queries = np.array(list(inside), np.int64)
    return queries, np.maximum(0.0, latency[queries] - np.array(list(inside.values()), np.float64))


def observed(observer: Observer, due: NDArray[np.float64]) -> Visits:
    """What a simulation's observer saw; of drops, those of the queries that it follows."""
    rows: list[NDArray[np.float64]] = []
    for number, log in enumerate(observer.stages.values()):
        index, arrived, entered = np.array(log.visits, float), np.array(log.arrived), np.array(log.entered)
        started, ended = np.array(log.started), np.array(log.ended)
        stage = np.full(len(index), float(number))
        rows.append(np.stack([index, stage, arrived, entered - arrived, started - entered, ended - started]))
        lost, came, at = np.array(log.drops, float), np.array(log.drop_arrived), np.array(log.dropped)
        followed = lost % observer.every == 0
        zero = np.zeros(int(followed.sum()))
        place = zero + number
        rows.append(np.stack([lost[followed], place, came[followed], (at - came)[followed], zero, zero]))
    return _visits(tuple(observer.stages), np.concatenate(rows, axis=1), due)


def told(
    timings: Mapping[int, Sequence[StageTiming]],
    latency: NDArray[np.float64],
    predecessors: Mapping[str, Sequence[str]],
) -> Visits:
    """What the outcomes tell, by query. They say how long each part took, not when a stage began with a query.

    So a stage is taken to begin when the last before it ended, and what the timings leave unexplained of the latency is
    spread evenly over the hops. `predecessors` by stage are in topological order; `latency` is NaN where unknown.
    """
    numbers = {name: number for number, name in enumerate(predecessors)}
    rows: list[tuple[float, ...]] = []
    for query, passed in timings.items():
        begins, (seconds, stages) = explained(passed, predecessors)
        unexplained = float(latency[query]) - seconds
        hop = max(0.0, unexplained) / (stages + 1) if np.isfinite(unexplained) else 0.0
        for one in passed:
            if one.stage in begins:
                begun, before = begins[one.stage]
                times = begun + (before + 1) * hop, one.queued, one.waited, one.executed if one.batch else 0.0
                rows.append((query, numbers[one.stage], *times))
    table = np.array(rows, float).reshape(-1, 6).T
    return _visits(tuple(predecessors), table, np.zeros(len(latency)))


def _visits(stages: tuple[str, ...], table: NDArray[np.float64], due: NDArray[np.float64]) -> Visits:
    query = table[0].astype(np.int64)
    return Visits(stages, query, table[1].astype(np.int64), table[2] - due[query], *table[3:])


@dataclass(frozen=True, slots=True)
class StageLoad:
    """One stage, with an element for each synchronisation of the policies."""

    at: NDArray[np.float64]  # seconds
    mu: NDArray[np.float64]  # arrivals by capacity
    high: NDArray[np.bool_]  # whether most replicas take the high budgets first


def live_series(result: LoadResult, witness: Witness, graph: Graph, slo: float) -> tuple[RunSeries, Visits]:
    """What became of each query, and the visits that outcomes told of. `slo` in seconds."""
    latency = result.finished - result.due
    lost_at = [witness.lost_at.get(index, "") for index in range(len(result.due))]
    run = RunSeries(result.due, latency, result.kind == PREDICTION, lost_at, slo)
    before = {stage: graph.predecessors[stage] for stage in graph.order}
    return run, told(witness.timings, latency, before)


def simulated_series(result: SimulationResult, observer: Observer) -> tuple[RunSeries, Visits]:
    """What became of each query, and the visits that the observer followed."""
    lost_at = [""] * len(result.due)
    for stage, log in observer.stages.items():
        for index in log.drops:
            lost_at[index] = lost_at[index] or stage
    run = RunSeries(result.due, result.finished - result.due, result.kind == PREDICTION, lost_at, result.slo)
    return run, observed(observer, result.due)


def stage_loads(pipeline: Pipeline, result: SimulationResult, observer: Observer) -> dict[str, StageLoad]:
    """How loaded each stage was, where its replicas told; its capacity is that of full batches, as profiled."""
    found = {}
    for stage in pipeline.spec.stages:
        ticks = [tick for tick in observer.ticks if tick.stage == stage.name]
        seconds = pipeline.durations[stage.name](stage.batching.most)
        if ticks and seconds > 0:
            capacity = result.stages[stage.name].instances * stage.batching.most / seconds
            rates = np.array([tick.arrival_rate for tick in ticks])
            at = np.array([tick.at for tick in ticks])
            found[stage.name] = StageLoad(at, rates / capacity, np.array([tick.hbf > 0.5 for tick in ticks]))  # noqa: PLR2004 - most
    return found
