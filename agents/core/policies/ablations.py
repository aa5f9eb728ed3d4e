"""The ablations: those that take requests in another order, and those that estimate less, or more (section 5.3)."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, final

from agents.core.estimates.outlook import Later
from agents.core.policies.adaptive import HIGH, INSTANT, LOW
from agents.core.policies.pard import Pard, PardParameters

if TYPE_CHECKING:
    from collections.abc import Callable

    from agents.core.policy import Refusal, StageView
    from agents.core.request import Path, Request


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
