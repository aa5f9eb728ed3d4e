"""Dropping in a pipeline with autoregressive stages (section 7 of the PARD paper).

Before a request joins the running batch, enters a forming batch or takes a thread, at t_b, it is dropped if it is
estimated to miss its deadline:

    t_e + own + sum q_i + sum d_i + w > deadline

own is the stage's estimate of its own work (`benchmarks.rag.estimates`); the rest is what eq. 3 says of the
later stages on the worst path, from the same parts as `pard`. Under continuous batching t_e = t_b, so such stages tell
batch waits of 0, and as their d_i what an average request takes. Requests go in order of arrival.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from spillway.agents.core.estimates.observed import Observed
from spillway.agents.core.estimates.outlook import Later, Outlook
from spillway.agents.core.estimates.window import DEFAULT
from spillway.agents.core.policies.fifo import Fifo
from spillway.agents.core.policy import Load, Refusal, Shortfall, StageState, StageView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.rag.estimates import Own
    from benchmarks.rag.generation import Generation
    from spillway.agents.core.request import Request

QUANTILE = 0.1  # lambda of eq. 3
_DRAWS = 1_000  # of batch waits; only retrieve has any


class Foresight(Fifo):
    """Order of arrival; drops what is estimated to miss its deadline."""

    __slots__ = ("_later", "_outlook", "_own", "_seen")

    def __init__(
        self, view: StageView, own: Own, quantile: float = QUANTILE, window: float = DEFAULT, *, alone: bool = False
    ) -> None:
        super().__init__(view)
        self._own = own
        self._seen = Observed(view, window, _DRAWS)
        self._outlook = None if alone else Outlook(view, quantile, _DRAWS)
        self._later = Later() if self._outlook is None else self._outlook.later(view.stage)

    def judge(self, now: float, starts: float, request: Request) -> Refusal | None:
        own, later = self._own.seconds(request), self._later
        if starts + own + later.total <= request.deadline:
            self._seen.delays.append(now - request.arrived)
            self._seen.waits.append(starts - now)
            return None
        return Shortfall(
            self.view.stage,
            now=now,
            starts=starts,
            sent=request.sent,
            deadline=request.deadline,
            duration=own,
            queueing=later.queueing,
            execution=later.execution,
            waits=later.waits,
        )

    def first(self, now: float, request: Generation) -> None:
        self._own.first(now, request)

    def ended(self, now: float, request: Request) -> None:
        self._own.ended(now, request)

    def report(self, now: float, load: Load) -> StageState:
        return self._seen.report(now, replace(load, duration=self._own.close(now)))

    def tick(self, now: float, load: Load, states: Mapping[str, Sequence[StageState]]) -> None:  # noqa: ARG002
        if self._outlook is not None:
            self._outlook.hear(now, states)
            self._later = self._outlook.later(self.view.stage)
