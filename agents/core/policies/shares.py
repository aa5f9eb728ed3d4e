"""Policies that give every stage a share of the SLO (PARD, sections 5.1 and 5.3).

SLO_k = SLO * x_k / (sum of x over the longest path through k), with x the durations of full batches, or, for `wcl`, the
longest that a request lately took at the stage. A request's SLO is what its sender gave it: t_s to its deadline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from spillway.agents.core.estimates.outlook import Outlook
from spillway.agents.core.policies.adaptive import Adaptive
from spillway.agents.core.policies.fifo import Fifo
from spillway.agents.core.policy import Refusal, Shortfall
from spillway.lineage import reasons

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spillway.agents.core.policies.adaptive import Recording
    from spillway.agents.core.policy import Load, StageState, StageView
    from spillway.agents.core.request import Request


# Nexus: drops at t_b what cannot end within the current module's latency budget (PARD, section 5.1).
#
# "Scans the queue in arrival order with a sliding window equal to the batch size, stopping at the first position where
# all requests in the window can meet the current module's latency budget and dropping all earlier ones." So a request
# that could still make it is dropped with one behind it that cannot, where the two wait in another order than they were
# sent in: behind a stage with several workers. What arrives while its batch has room is a window of its own.
#
# Two readings of that budget. `nexus`: the deadline itself, at the end of this stage (section 5.2: "without considering
# the latency budget for subsequent modules"). `nexus-split`: the stage's share of the SLO, from the arrival at the
# stage.


def _behind(stage: str, refusal: Refusal) -> Refusal:
    return Refusal(
        refusal.reason,
        f"{stage}: a request behind it in the queue was refused, so all requests before that one are refused too",
    )


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


def share(view: StageView, weigh: Callable[[str], float]) -> float:
    """Give the stage's part of the SLO: its weight over that of the longest path through it; 1 where none weighs."""
    before: dict[str, list[str]] = {}
    for stage, successors in view.successors.items():
        for successor in successors:
            before.setdefault(successor, []).append(stage)
    own = weigh(view.stage)
    whole = own + _longest(view.stage, before, weigh, {}) + _longest(view.stage, view.successors, weigh, {})
    return own / whole if whole > 0 else 1.0


def _longest(
    stage: str, edges: Mapping[str, Sequence[str]], weigh: Callable[[str], float], known: dict[str, float]
) -> float:
    if stage not in known:
        ways = (weigh(each) + _longest(each, edges, weigh, known) for each in edges.get(stage, ()))
        known[stage] = max(ways, default=0.0)
    return known[stage]


def planned(view: StageView) -> Callable[[str], float]:
    def weigh(stage: str) -> float:
        facts = view.facts.get(stage)
        return facts.duration(facts.batch) if facts is not None else 0.0

    return weigh


def over(stage: str, spent: float, most: float) -> Refusal:
    return Refusal(reasons.OVER_SHARE, f"{stage}: {1000 * spent:.1f} ms of {1000 * most:.1f} ms allotted to this stage")


@final
class ClipperPlusPlus(Fifo):
    """Clipper++ (section 5.1): drops at t_b what has waited longer for its batch than the stage's share of the SLO."""

    __slots__ = ("_share",)

    def __init__(self, view: StageView) -> None:
        super().__init__(view)
        self._share = share(view, planned(view))

    def judge(self, now: float, starts: float, request: Request) -> Refusal | None:  # noqa: ARG002
        most = self._share * (request.deadline - request.sent)
        if now - request.arrived > most:
            return over(self.view.stage, now - request.arrived, most)
        return None


class _Shared(Adaptive):
    """In PARD's order; refuses when t_e + d_k > t_r + SLO_k."""

    __slots__ = ("_share",)

    def __init__(self, view: StageView, parameters: Recording) -> None:
        super().__init__(view, parameters)
        self._share = share(view, planned(view))

    def judge(self, now: float, starts: float, request: Request) -> Refusal | None:
        most = self._share * (request.deadline - request.sent)
        spent = starts + self._duration - request.arrived
        if spent > most:
            return over(self.view.stage, spent, most)
        self._seen.delays.append(now - request.arrived)
        self._seen.waits.append(starts - now)
        return None


@final
class Split(_Shared):
    """PARD-split: fixed shares."""

    __slots__ = ()


@final
class WorstCase(_Shared):
    """PARD-WCL: shares by what lately was the longest time from t_r to the end of the batch, at least d."""

    __slots__ = ("_outlook",)

    def __init__(self, view: StageView, parameters: Recording) -> None:
        super().__init__(view, parameters)
        self._outlook: Outlook = view.shared.setdefault((Outlook, "worst case"), Outlook(view, 0.0, 1))

    def judge(self, now: float, starts: float, request: Request) -> Refusal | None:
        refusal = super().judge(now, starts, request)
        if refusal is None:
            took = starts + self._duration - request.arrived
            self._seen.longest = max(took, self._seen.longest)
        return refusal

    def tick(self, now: float, load: Load, states: Mapping[str, Sequence[StageState]]) -> None:
        super().tick(now, load, states)
        self._outlook.hear(now, states)

        def weigh(stage: str) -> float:
            longest = max((state.longest for state in states.get(stage, ())), default=0.0)
            return max(self._outlook.duration(stage), longest)

        self._share = share(self.view, weigh)
