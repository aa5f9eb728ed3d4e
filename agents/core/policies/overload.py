"""PARD-oc: the overload control of DAGOR (PARD, section 5.3).

When the mean queueing delay of any stage in the last period exceeds the threshold, the root stages refuse each arrival
with probability alpha during the next one. Nothing else is ever dropped.
"""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING, ClassVar, final
from zlib import crc32

from pydantic import Field

from agents.core.estimates.observed import Observed
from agents.core.policies.fifo import Fifo
from agents.core.policy import Parameters, Refusal
from lineage import reasons

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agents.core.policy import Load, StageState, StageView
    from agents.core.request import Request


class OverloadParameters(Parameters):
    """What can be set of the overload control."""

    threshold: float = Field(0.025, gt=0)
    """Seconds of queueing; the paper's best were .020 for its steadiest trace and .025 for the bursty ones."""
    alpha: float = Field(0.4, ge=0, le=1)
    """The share of arrivals that is refused in overload."""


@final
class OverloadControl(Fifo):
    """First in, first out behind an admission control."""

    __slots__ = ("_overloaded", "_root", "_seen", "parameters")

    parameters_type: ClassVar[type[Parameters]] = OverloadParameters

    def __init__(self, view: StageView, parameters: OverloadParameters) -> None:
        super().__init__(view)
        self.parameters = parameters
        # A window of one period: the mean of the last one alone.
        self._seen = Observed(view, view.period, samples=1)
        self._root = all(view.stage not in successors for successors in view.successors.values())
        self._overloaded = ""  # the stage that is

    def admit(self, now: float, request: Request) -> Refusal | None:  # noqa: ARG002
        """Refuse a share of what arrives at a root while some stage is overloaded."""
        if self._overloaded and self._root and self._lot(request) < self.parameters.alpha:
            return Refusal(reasons.OVERLOAD, f"stage {self._overloaded} queues for too long")
        return None

    def _lot(self, request: Request) -> float:
        return crc32(pack("dq", request.sent, self.view.seed)) / 2**32

    def judge(self, now: float, starts: float, request: Request) -> Refusal | None:
        self._seen.delays.append(now - request.arrived)
        self._seen.waits.append(starts - now)
        return None

    def report(self, now: float, load: Load) -> StageState | None:
        return self._seen.report(now, load)

    def tick(self, now: float, load: Load, states: Mapping[str, Sequence[StageState]]) -> None:  # noqa: ARG002
        self._overloaded = next((name for name, told in states.items() if _queueing(told) > self.threshold), "")

    @property
    def threshold(self) -> float:
        return self.parameters.threshold


def _queueing(states: Sequence[StageState]) -> float:
    weight = sum(state.entered for state in states)
    return sum(state.queueing * state.entered for state in states) / weight if weight > 0 else 0.0
