"""What can be seen of a simulation beside its result: every visit, every drop and synchronisation.

An observer is handed to `spillway.agents.sim.simulation.simulate`; without one nothing is recorded, and nothing is paid
for it. Everything is kept raw, in arrays with one element per event, and reckoned with afterwards. Times
are seconds of the simulated clock.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spillway.producers.report import PREDICTION, Report, StageTotals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from spillway.agents.core.batching import Batch
    from spillway.agents.core.policy import StageState


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """One element per request, in order of arrival; times in seconds of the simulated clock."""

    pipeline: str
    policy: str
    period: float  # of the policies' synchronisation
    slo: float
    due: NDArray[np.float64]
    finished: NDArray[np.float64]
    kind: NDArray[np.uint8]  # as `spillway.producers.report` names them
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


class StageLog:
    """What happened in one stage. A visit: t_r (arrived), t_b (entered a batch), t_e (started) and the batch's end."""

    def __init__(self) -> None:
        self.visits = array("q")  # the request's index
        self.arrived = array("d")
        self.entered = array("d")
        self.started = array("d")
        self.ended = array("d")
        self.sizes = array("i")  # of the batch that it was in
        self.drops = array("q")  # the request's index
        self.drop_arrived = array("d")
        self.dropped = array("d")  # when


@dataclass(frozen=True, slots=True)
class Tick:
    """What one stage's replicas told at one synchronisation of the policies."""

    at: float
    stage: str
    arrival_rate: float  # sum over the replicas, per second
    queueing: float  # mean over the replicas
    backlog: int  # sum
    hbf: float  # share of the replicas that serve the high budgets first


class Observer:
    """Records one simulation. Not to be used for a second one."""

    def __init__(self, every: int = 1) -> None:
        """`every`: record the visits of one request in so many, by index; drops are all recorded."""
        self.every = every
        self.stages: dict[str, StageLog] = {}
        self.ticks: list[Tick] = []

    def begin(self, stages: Sequence[str]) -> None:
        self.stages = {name: StageLog() for name in stages}

    def batch(self, now: float, stage: str, batch: Batch) -> None:
        log = self.stages[stage]
        every, started, size = self.every, batch.started, len(batch.requests)
        for request in batch.requests:
            index: int = request.index  # type: ignore[attr-defined]  # the simulator's requests are Travellers
            if every > 1 and index % every:
                continue
            log.visits.append(index)
            log.arrived.append(request.arrived)
            log.entered.append(request.entered)
            log.started.append(started)
            log.ended.append(now)
            log.sizes.append(size)

    def drop(self, now: float, stage: str, index: int, arrived: float) -> None:
        """Hear that a stage dropped request `index`, which had come to it at `arrived`."""
        log = self.stages[stage]
        log.drops.append(index)
        log.drop_arrived.append(arrived)
        log.dropped.append(now)

    def synchronised(self, now: float, states: Mapping[str, Sequence[StageState]]) -> None:
        for stage, told in states.items():
            if told:
                self.ticks.append(
                    Tick(
                        at=now,
                        stage=stage,
                        arrival_rate=sum(state.arrival_rate for state in told),
                        queueing=sum(state.queueing for state in told) / len(told),
                        backlog=sum(state.backlog for state in told),
                        hbf=sum(bool(getattr(state, "hbf", False)) for state in told) / len(told),
                    )
                )
