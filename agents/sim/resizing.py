"""Adds workers to the stages of a running simulation and takes them away, as `agents.sim.scaling` decides.

A worker is a queue with one instance (dispatch worker). The facts that the policies see are kept true: `workers` of a
stage's facts are those that are in turn now.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from agents.sim.scaling import StageScaler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from agents.core.policy import StageFacts
    from agents.sim.observe import Observer
    from agents.sim.plan import Plan
    from agents.sim.scaling import Scaling
    from agents.sim.travel import StageRun, Station


class Resizing:
    """The stages' scalers, and the workers that are starting."""

    def __init__(
        self,
        plan: Plan,
        stages: Mapping[str, StageRun],
        facts: dict[str, StageFacts],
        arrivals: NDArray[np.float64],
        observer: Observer | None,
    ) -> None:
        """`facts` is the mapping that all policies look at; it is changed in place."""
        if plan.scaling is None:
            raise ValueError("a plan without scaling")
        self._scaling: Scaling = plan.scaling
        self.period = plan.scaling.period
        self._stages = stages
        self._facts = facts
        self._arrivals = arrivals
        self._observer = observer
        self._starting = dict.fromkeys(stages, 0)
        self._scalers = {
            name: StageScaler(plan.scaling, each.batch / each.duration(each.batch)) for name, each in facts.items()
        }
        if observer is not None:
            for name, each in facts.items():
                observer.resized(0.0, name, each.workers)

    def decide(self, now: float) -> Iterator[tuple[float, Callable[[float], None]]]:
        """Take away what is not needed; give, for each worker that is, when its cold start ends and what to do then."""
        requests = int(np.searchsorted(self._arrivals, now, side="right"))
        for name, run in self._stages.items():
            self._sweep(run)
            wanted = self._scalers[name].decide(now, requests)
            more = wanted - len(run.stations) - self._starting[name]
            for _ in range(more):
                self._starting[name] += 1
                yield now + self._scaling.cold_start, lambda at, run=run: self._add(at, run)  # type: ignore[misc]
            # Those that are starting cannot be called back; what is too much by them goes when they have come.
            for _ in range(min(-more, len(run.stations) - 1)):
                run.retiring.append(run.stations.pop())
                self._turned(now, run)

    def _add(self, now: float, run: StageRun) -> None:
        self._starting[run.name] -= 1
        run.stations.append(run.open())
        self._turned(now, run)

    def _turned(self, now: float, run: StageRun) -> None:
        run.next = cycle(run.stations).__next__
        self._facts[run.name] = replace(self._facts[run.name], workers=len(run.stations))
        if self._observer is not None:
            self._observer.resized(now, run.name, len(run.stations))

    def _sweep(self, run: StageRun) -> None:
        idle = [station for station in run.retiring if _is_idle(station)]
        for station in idle:
            run.retiring.remove(station)
            run.gone.append(station)


def _is_idle(station: Station) -> bool:
    return station.depth == 0 and station.started == station.completed
