"""The ablations: those that take requests in another order, and those that estimate less, or more (section 5.3)."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from struct import pack
from typing import TYPE_CHECKING, ClassVar, final
from zlib import crc32

from pydantic import Field

from spillway.agents.core.estimates.observed import Observed
from spillway.agents.core.estimates.outlook import Later
from spillway.agents.core.policies.adaptive import HIGH, INSTANT, LOW
from spillway.agents.core.policies.fifo import Fifo
from spillway.agents.core.policies.pard import Pard, PardParameters
from spillway.agents.core.policy import Parameters, Refusal
from spillway.lineage import reasons

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spillway.agents.core.policy import Load, StageState, StageView
    from spillway.agents.core.request import Path, Request


# PARD-oc: the overload control of DAGOR (PARD, section 5.3).
#
# When the mean queueing delay of any stage in the last period exceeds the threshold, the root stages refuse each
# arrival with probability alpha during the next one. Nothing else is ever dropped.


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
            return Refusal(reasons.OVERLOAD, f"stage {self._overloaded} has a queueing delay over its limit")
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


class _OtherWaits(Pard):
    """Several paths may be worst by another measure: each variant looks for its own worst path."""

    __slots__ = ()

    def later(self, choices: Path) -> Later:
        outlook, stage = self._outlook, self.view.stage
        return max(
            (
                self.terms(
                    Later(
                        sum(outlook.queueing(each) for each in path),
                        sum(outlook.duration(each) for each in path),
                        outlook.hops(path),
                        path,
                    )
                )
                for path in outlook.paths(stage, choices)
            ),
            key=lambda later: later.total,
        )

    def terms(self, later: Later) -> Later:
        raise NotImplementedError


@final
class Back(_OtherWaits):
    """L_sub = 0: only what lies behind the request, and this stage."""

    __slots__ = ()

    def terms(self, later: Later) -> Later:
        return Later(path=later.path)


@final
class ShortestFuture(_OtherWaits):
    """L_sub = sum d_i: later stages execute at once."""

    __slots__ = ()

    def terms(self, later: Later) -> Later:
        return replace(later, queueing=0.0)


@final
class Lower(_OtherWaits):
    """L_sub = sum q_i + sum d_i: no batch waits."""

    __slots__ = ()

    def terms(self, later: Later) -> Later:
        return later


@final
class Upper(_OtherWaits):
    """L_sub = sum q_i + 2 sum d_i: every batch wait as long as it can be."""

    __slots__ = ()

    def terms(self, later: Later) -> Later:
        return replace(later, waits=later.waits + later.execution)


@final
class HighBudgetFirst(Pard):
    """Always the largest remaining budget first."""

    __slots__ = ()
    order: ClassVar[str] = HIGH


@final
class LowBudgetFirst(Pard):
    """Always the smallest remaining budget first."""

    __slots__ = ()
    order: ClassVar[str] = LOW


@final
class Instant(Pard):
    """Switches whenever mu passes 1: no band."""

    __slots__ = ()
    order: ClassVar[str] = INSTANT


@final
class ArrivalOrder(Pard):
    """First come, first served."""

    __slots__ = ("_line",)
    order: ClassVar[str] = LOW

    def __init__(self, view: StageView, parameters: PardParameters) -> None:
        super().__init__(view, parameters)
        self._line: deque[Request] = deque()

    def push(self, now: float, request: Request) -> None:  # noqa: ARG002
        self._line.append(request)

    def pop(self, now: float) -> Request | None:  # noqa: ARG002
        return self._line.popleft() if self._line else None

    def expire(self, now: float, drops: list[tuple[Request, Refusal]]) -> None:
        """Leave all in line: everything comes to its front, and is judged there."""

    def __len__(self) -> int:
        return len(self._line)

    def remove(self, unwanted: Callable[[Request], bool]) -> list[Request]:
        removed = [request for request in self._line if unwanted(request)]
        self._line = deque(request for request in self._line if not unwanted(request))
        return removed
