"""Nexus: drops at t_b what cannot end within the current module's latency budget (PARD, section 5.1).

"Scans the queue in arrival order with a sliding window equal to the batch size, stopping at the first position where
all requests in the window can meet the current module's latency budget and dropping all earlier ones." So a request
that could still make it is dropped with one behind it that cannot, where the two wait in another order than they were
sent in: behind a stage with several workers. What arrives while its batch has room is a window of its own.

Two readings of that budget. `nexus`: the deadline itself, at the end of this stage (section 5.2: "without considering
the latency budget for subsequent modules"). `nexus-split`: the stage's share of the SLO, from the arrival at the stage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from agents.core.policies.fifo import Fifo
from agents.core.policies.shares import over, planned, share
from agents.core.policy import Refusal, Shortfall

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agents.core.policy import Load, StageState, StageView
    from agents.core.request import Request


def _behind(stage: str, refusal: Refusal) -> Refusal:
    return Refusal(refusal.reason, f"{stage}: one that waits behind it is refused, and with it all before that one")


class _Windowed(Fifo):
    """Slides a window over the queue. Knows how long a full batch takes: as profiled, and then, as measured."""

    __slots__ = ("_duration",)

    def __init__(self, view: StageView) -> None:
        super().__init__(view)
        self._duration = planned(view)(view.stage)

    def tick(self, now: float, load: Load, states: Mapping[str, Sequence[StageState]]) -> None:  # noqa: ARG002
        if load.duration > 0:
            self._duration = load.duration

    def fill(
        self, now: float, starts: float, room: int, batch: list[Request], drops: list[tuple[Request, Refusal]]
    ) -> None:
        waiting, judge, take = self._waiting, self.judge, self._waiting.popleft
        window: list[Request] = []
        while len(window) < room and waiting:
            request = take()
            refusal = judge(now, starts, request)
            if refusal is None:
                window.append(request)
                continue
            drops.extend((earlier, _behind(self.view.stage, refusal)) for earlier in window)
            drops.append((request, refusal))
            window.clear()
        for request in window:
            request.entered = now
        batch += window


@final
class Nexus(_Windowed):
    """Refuses when t_e + d_k is behind the deadline."""

    __slots__ = ()

    def judge(self, now: float, starts: float, request: Request) -> Refusal | None:
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
class NexusSplit(_Windowed):
    """Refuses when t_e + d_k > t_r + SLO_k."""

    __slots__ = ("_share",)

    def __init__(self, view: StageView) -> None:
        super().__init__(view)
        self._share = share(view, planned(view))

    def judge(self, now: float, starts: float, request: Request) -> Refusal | None:  # noqa: ARG002
        most = self._share * (request.deadline - request.sent)
        spent = starts + self._duration - request.arrived
        return over(self.view.stage, spent, most) if spent > most else None
