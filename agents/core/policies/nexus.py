"""Nexus: drops at t_b what cannot end within the current module's latency budget (PARD, section 5.1).

Two readings of that budget. `nexus`: the deadline itself, at the end of this stage (section 5.2: "without considering
the latency budget for subsequent modules"). `nexus-split`: the stage's share of the SLO, from the arrival at the stage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from agents.core.policies.fifo import Fifo
from agents.core.policies.shares import over, planned, share
from agents.core.policy import Shortfall

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agents.core.policy import Load, Refusal, StageState, StageView
    from agents.core.request import Request


class _Measured(Fifo):
    """Knows how long a full batch takes: as profiled, and, once a period, as measured."""

    __slots__ = ("_duration",)

    def __init__(self, view: StageView) -> None:
        super().__init__(view)
        self._duration = planned(view)(view.stage)

    def tick(self, now: float, load: Load, states: Mapping[str, Sequence[StageState]]) -> None:  # noqa: ARG002
        """Take the measured duration, where there is one."""
        if load.duration > 0:
            self._duration = load.duration


@final
class Nexus(_Measured):
    """Refuses when t_e + d_k is behind the deadline."""

    __slots__ = ()

    def judge(self, now: float, starts: float, request: Request) -> Refusal | None:
        """Refuse what would end here too late."""
        if starts + self._duration > request.deadline:
            return Shortfall(
                self.view.stage,
                now=now,
                starts=starts,
                sent=request.sent,
                deadline=request.deadline,
                duration=self._duration,
            )
        return None


@final
class NexusSplit(_Measured):
    """Refuses when t_e + d_k > t_r + SLO_k."""

    __slots__ = ("_share",)

    def __init__(self, view: StageView) -> None:
        super().__init__(view)
        self._share = share(view, planned(view))

    def judge(self, now: float, starts: float, request: Request) -> Refusal | None:  # noqa: ARG002
        """Refuse what would take longer here than is meant for this stage."""
        most = self._share * (request.deadline - request.sent)
        spent = starts + self._duration - request.arrived
        return over(self.view.stage, spent, most) if spent > most else None
