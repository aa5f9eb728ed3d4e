"""First in, first out: `naive` drops nothing, `expired` what is past its deadline when it is about to enter a batch."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, final

from spillway.agents.core.policy import Policy, Refusal, StageView
from spillway.lineage import reasons

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.agents.core.request import Request


class Fifo(Policy):
    """Order of arrival at the stage; drops nothing."""

    __slots__ = ("_waiting",)

    def __init__(self, view: StageView) -> None:
        super().__init__(view)
        self._waiting: deque[Request] = deque()

    def push(self, now: float, request: Request) -> None:  # noqa: ARG002
        self._waiting.append(request)

    def pop(self, now: float) -> Request | None:  # noqa: ARG002
        return self._waiting.popleft() if self._waiting else None

    def __len__(self) -> int:
        return len(self._waiting)

    def remove(self, unwanted: Callable[[Request], bool]) -> list[Request]:
        removed = [request for request in self._waiting if unwanted(request)]
        if removed:
            self._waiting = deque(request for request in self._waiting if not unwanted(request))
        return removed


@final
class Naive(Fifo):
    """The baseline of the PARD paper that drops nothing. Its `fill` does not ask `judge`: derive from Fifo instead."""

    __slots__ = ()

    def fill(
        self,
        now: float,
        starts: float,  # noqa: ARG002
        room: int,
        batch: list[Request],
        drops: list[tuple[Request, Refusal]],  # noqa: ARG002
    ) -> None:
        waiting = self._waiting
        take = waiting.popleft
        for _ in range(min(room, len(waiting))):
            request = take()
            request.entered = now
            batch.append(request)


class Expired(Fifo):
    """Drops at t_b what is already past its deadline; a request that will end too late is still served."""

    __slots__ = ()

    def judge(self, now: float, starts: float, request: Request) -> Refusal | None:  # noqa: ARG002
        if request.deadline < now:
            return Refusal(reasons.EXPIRED, f"{1000 * (now - request.deadline):.1f} ms past its deadline")
        return None
