"""The event loop of a pipeline with autoregressive stages: queries visit stations, meet at joins, end or are dropped.

A query is good when its outcome (the last stage's end, or its first token where that is what counts) is there by its
deadline. Dropped at one branch, it is dropped; its other branch goes on unaware, and what that takes is wasted.
Deterministic: events at the same instant happen in the order in which they were planned, arrivals first.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.rag.plan import Batches, Generator, Needs
from benchmarks.rag.stations import BatchStation, GeneratorStation, Station, ThreadStation, Visit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from benchmarks.rag.plan import Queries, TokenPlan, TokenStage
    from spillway.agents.core.policy import Policy, StageState, StageView

_NEVER = float("inf")
_NAN = float("nan")


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


class TokenEngine:
    """One run of a plan over queries. Call `run` once; it gives the result."""

    def __init__(self, plan: TokenPlan, queries: Queries, policy: Callable[[StageView, TokenStage], Policy]) -> None:
        """`policy` makes the policy of each stage."""
        self._plan = plan
        self._queries = queries
        self._stages = {stage.name: stage for stage in plan.stages}
        self._stations = {stage.name: self._station(stage, policy(plan.view(stage), stage)) for stage in plan.stages}
        self._needs = {stage.name: queries.needs.get(stage.name, Needs()) for stage in plan.stages}
        self._missing: dict[tuple[str, int], int] = {}  # at a join: branches that have not delivered
        self._heap: list[tuple[float, int, Callable[[float], None]]] = []
        self._serial = 0
        self._more = True
        count = len(queries.due)
        self._sent = queries.due.tolist()
        self._finished = array("d", [_NAN]) * count
        self._charged = array("d", [0.0]) * count
        self._lost = [""] * count  # the stage that dropped it

    def run(self) -> TokenResult:
        heap = self._heap
        self.plan(self._plan.period, self._synchronise)
        root = self._plan.stages[0].name
        last = len(self._sent) - 1
        for index, sent in enumerate([*self._sent, _NEVER]):
            while heap and heap[0][0] < sent:
                now, _, action = heappop(heap)
                action(now)
            if index <= last:
                self._more = index < last
                self._visit(sent, root, index)
        return TokenResult(
            self._plan.slo,
            self._queries.due,
            np.array(self._finished),
            np.array(self._charged),
            self._lost,
            {name: station.load().busy for name, station in self._stations.items()},
        )

    # What stations ask ------------------------------------------------------------------------------------------

    def plan(self, at: float, action: Callable[[float], None]) -> None:
        self._serial += 1
        heappush(self._heap, (at, self._serial, action))

    def first(self, now: float, stage: str, request: Visit) -> None:
        kind = self._stages[stage].kind
        if isinstance(kind, Generator) and kind.until_first:
            self._finished[request.index] = now

    def ended(self, now: float, stage: str, request: Visit) -> None:
        self._charged[request.index] += request.charged
        kind = self._stages[stage].kind
        if not self._plan.successors[stage] and not (isinstance(kind, Generator) and kind.until_first):
            self._finished[request.index] = now
        for successor in self._plan.successors[stage]:
            self._deliver(now, successor, request.index)

    def dropped(self, stage: str, request: Visit) -> None:
        if not self._lost[request.index]:
            self._lost[request.index] = stage

    # Inside -----------------------------------------------------------------------------------------------------

    def _station(self, stage: TokenStage, policy: Policy) -> Station:
        kind = stage.kind
        if isinstance(kind, Generator):
            return GeneratorStation(stage.name, policy, kind.profile, self)
        if isinstance(kind, Batches):
            return BatchStation(stage.name, policy, kind, self)
        return ThreadStation(stage.name, policy, kind, self)

    def _deliver(self, now: float, stage: str, index: int) -> None:
        branches = len(self._stages[stage].after)
        if branches > 1:
            missing = self._missing.pop((stage, index), branches) - 1
            if missing:
                self._missing[stage, index] = missing
                return
        self._visit(now, stage, index)

    def _visit(self, now: float, stage: str, index: int) -> None:
        needs = self._needs[stage]
        sent = self._sent[index]
        self._stations[stage].push(
            now,
            Visit(
                index,
                sent,
                sent + self._plan.slo,
                now,
                1 if needs.prompt is None else int(needs.prompt[index]),
                1 if needs.output is None else int(needs.output[index]),
                0.0 if needs.seconds is None else float(needs.seconds[index]),
            ),
        )

    def _synchronise(self, now: float) -> None:
        states: dict[str, list[StageState]] = {}
        for name, station in self._stations.items():
            state = station.policy.report(now, station.load())
            if state is not None:
                states[name] = [state]
        for station in self._stations.values():
            station.policy.tick(now, station.load(), states)
        if self._heap or self._more:
            self.plan(now + self._plan.period, self._synchronise)
