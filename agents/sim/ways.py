"""What an observer recorded, as one reads it: a request's way through the stages, and all visits as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agents.sim.observe import Observer, StageLog


class Step(NamedTuple):
    """One request in one stage, in seconds: it queues, waits in a batch, runs; or it was dropped at `ended`."""

    stage: str
    arrived: float  # t_r
    entered: float  # t_b
    started: float  # t_e
    ended: float
    dropped: bool


def way_of(observer: Observer, index: int) -> list[Step]:
    """Give the steps of request `index` in the order in which it came to the stages; none where it was not sampled."""
    steps: list[Step] = []
    for name, log in observer.stages.items():
        steps += [
            Step(name, log.arrived[at], log.entered[at], log.started[at], log.ended[at], dropped=False)
            for at, visitor in enumerate(log.visits)
            if visitor == index
        ]
        steps += [
            Step(name, log.drop_arrived[at], log.dropped[at], log.dropped[at], log.dropped[at], dropped=True)
            for at, loser in enumerate(log.drops)
            if loser == index
        ]
    return sorted(steps, key=lambda step: (step.arrived, step.ended))


@dataclass(frozen=True, slots=True)
class Visits:
    """All recorded visits of one stage, in the order in which their batches ended. Durations in seconds."""

    index: NDArray[np.int64]
    arrived: NDArray[np.float64]
    queued: NDArray[np.float64]  # Q = t_b - t_r
    waited: NDArray[np.float64]  # W = t_e - t_b
    executed: NDArray[np.float64]  # D

    @property
    def consumed(self) -> NDArray[np.float64]:
        """Q + W + D: what the visit took of the request's budget."""
        return self.queued + self.waited + self.executed


def visits_of(log: StageLog) -> Visits:
    arrived, entered, started, ended = (np.array(times) for times in (log.arrived, log.entered, log.started, log.ended))
    return Visits(np.array(log.visits, np.int64), arrived, entered - arrived, started - entered, ended - started)


def whole_waits(observer: Observer, requests: int) -> dict[str, NDArray[np.float64]]:
    """Give, by stage, the batch waits from that stage to the end, of the requests that went through all stages.

    Meant for a chain: the sums run over the stages in the pipeline's order.
    """
    names = list(observer.stages)
    waits = np.full((len(names), requests), np.nan)
    for row, name in enumerate(names):
        visits = visits_of(observer.stages[name])
        waits[row, visits.index] = visits.waited
    complete = waits[:, ~np.isnan(waits).any(axis=0)]
    sums = np.cumsum(complete[::-1], axis=0)[::-1]
    return {name: sums[row] for row, name in enumerate(names)}
