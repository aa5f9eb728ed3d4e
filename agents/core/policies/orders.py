"""The ablations that judge as PARD does and take requests in another order (section 5.3)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, ClassVar, final

from agents.core.policies.adaptive import HIGH, INSTANT, LOW
from agents.core.policies.pard import Pard, PardParameters

if TYPE_CHECKING:
    from collections.abc import Callable

    from agents.core.policy import Refusal, StageView
    from agents.core.request import Request


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
