"""The policies that only the paper's evaluation compares (PARD, sections 5.1 and 5.3): its rivals and its ablations.

They come in as any user's policy does, by `module:Class`; `setting_of` gives that for the paper's short names.

Shares: SLO_k = SLO * x_k / (sum of x over the longest path through k), with x the durations of full batches, or, for
`wcl`, the longest that a request lately took at the stage. A request's SLO is what its sender gave it: t_s to its
deadline.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from struct import pack
from typing import TYPE_CHECKING, ClassVar, Final, final
from zlib import crc32

from pydantic import Field

from spillway.agents.core.estimates.observed import Observed
from spillway.agents.core.estimates.outlook import Later, Outlook
from spillway.agents.core.estimates.window import DEFAULT as WINDOW
from spillway.agents.core.policies import POLICIES
from spillway.agents.core.policies.adaptive import HIGH, LOW, Adaptive, Pressure
from spillway.agents.core.policies.fifo import Fifo
from spillway.agents.core.policies.pard import Pard, PardParameters
from spillway.agents.core.policy import Parameters, Refusal, Shortfall

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spillway.agents.core.policies.adaptive import Recording
    from spillway.agents.core.policy import Load, Policy, StageState, StageView
    from spillway.agents.core.request import Path, Request

OVER_SHARE: Final = "over-share"  # has used up, or would, the part of the SLO that is meant for this stage
OVERLOAD: Final = "overload"  # refused on arrival, as the stages have more to do than they can
_BEHIND: Final = "a request behind it in the queue was refused, so all requests before that one are refused too"


# Nexus: drops at t_b what cannot end within the current module's latency budget (PARD, section 5.1). "Scans the queue
# in arrival order with a sliding window equal to the batch size, stopping at the first position where all requests in
# the window can meet the current module's latency budget and dropping all earlier ones." So a request that could still
# make it is dropped with one behind it that cannot. Two readings of that budget: `nexus`, the deadline itself, at the
# end of this stage; `nexus-split`, the stage's share of the SLO, from the arrival at the stage.


class Nexus(Fifo):
    """Slides a window over the queue; refuses when t_e + d_k is behind the deadline.

    Knows how long a full batch takes: as profiled, and then, as measured.
    """

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
            behind = Refusal(refusal.reason, f"{self.view.stage}: {_BEHIND}")
            drops.extend((earlier, behind) for earlier in window)
            drops.append((request, refusal))
            window.clear()
        for request in window:
            request.entered = now
        batch += window

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
class NexusSplit(Nexus):
    """The same, but refuses when t_e + d_k > t_r + SLO_k."""

    __slots__ = ("_share",)

    def __init__(self, view: StageView) -> None:
        super().__init__(view)
        self._share = share(view, planned(view))

    def judge(self, now: float, starts: float, request: Request) -> Refusal | None:  # noqa: ARG002
        return over(self.view.stage, request, self._share, starts + self._duration - request.arrived)


def share(view: StageView, weigh: Callable[[str], float]) -> float:
    """Return the stage's share of the SLO: its weight over that of the longest path through it; 1 where none weighs."""
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


def over(stage: str, request: Request, share: float, spent: float) -> Refusal | None:
    """Refuse a request that has spent more than a stage's share of its SLO."""
    most = share * (request.deadline - request.sent)
    if spent <= most:
        return None
    return Refusal(OVER_SHARE, f"{stage}: {1000 * spent:.1f} ms of {1000 * most:.1f} ms allotted to this stage")


@final
class ClipperPlusPlus(Fifo):
    """Clipper++ (section 5.1): drops at t_b what has waited longer for its batch than the stage's share of the SLO."""

    __slots__ = ("_share",)

    def __init__(self, view: StageView) -> None:
        super().__init__(view)
        self._share = share(view, planned(view))

    def judge(self, now: float, starts: float, request: Request) -> Refusal | None:  # noqa: ARG002
        return over(self.view.stage, request, self._share, now - request.arrived)


class Split(Adaptive):
    """PARD-split, with fixed shares: in PARD's order; refuses when t_e + d_k > t_r + SLO_k."""

    __slots__ = ("_share",)

    def __init__(self, view: StageView, parameters: Recording) -> None:
        super().__init__(view, parameters)
        self._share = share(view, planned(view))

    def judge(self, now: float, starts: float, request: Request) -> Refusal | None:
        refusal = over(self.view.stage, request, self._share, starts + self._duration - request.arrived)
        if refusal is None:
            self._seen.delays.append(now - request.arrived)
            self._seen.waits.append(starts - now)
        return refusal


@final
class WorstCase(Split):
    """PARD-WCL: shares by what lately was the longest time from t_r to the end of the batch, at least d.

    The longest times pass between the queues of one simulation; what live stages exchange has no room for them.
    """

    __slots__ = ("_longest", "_outlook", "_told", "_window", "_worst")

    def __init__(self, view: StageView, parameters: Recording) -> None:
        super().__init__(view, parameters)
        self._outlook: Outlook = view.shared.setdefault((Outlook, "worst case"), Outlook(view, 0.0, 1))
        self._told: dict[tuple[str, int], float] = view.shared.setdefault(WorstCase, {})
        self._window = WINDOW if parameters.window == "auto" else parameters.window
        self._longest = 0.0  # since the last report
        self._worst: list[tuple[float, float]] = []  # those of the window, each with when it was reported

    def judge(self, now: float, starts: float, request: Request) -> Refusal | None:
        refusal = super().judge(now, starts, request)
        if refusal is None:
            self._longest = max(starts + self._duration - request.arrived, self._longest)
        return refusal

    def report(self, now: float, load: Load) -> StageState | None:
        self._worst = [(at, value) for at, value in self._worst if now - at < self._window - 1e-9]
        self._worst.append((now, self._longest))
        self._longest = 0.0
        self._told[self.view.stage, self.view.replica] = max(value for _, value in self._worst)
        return super().report(now, load)

    def tick(self, now: float, load: Load, states: Mapping[str, Sequence[StageState]]) -> None:
        super().tick(now, load, states)
        self._outlook.hear(now, states)

        def weigh(stage: str) -> float:
            longest = max((value for (name, _), value in self._told.items() if name == stage), default=0.0)
            return max(self._outlook.duration(stage), longest)

        self._share = share(self.view, weigh)


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
        lot = crc32(pack("dq", request.sent, self.view.seed)) / 2**32
        if self._overloaded and self._root and lot < self.parameters.alpha:
            return Refusal(OVERLOAD, f"stage {self._overloaded} has a queueing delay over its limit")
        return None

    def judge(self, now: float, starts: float, request: Request) -> Refusal | None:
        self._seen.delays.append(now - request.arrived)
        self._seen.waits.append(starts - now)
        return None

    def report(self, now: float, load: Load) -> StageState | None:
        return self._seen.report(now, load)

    def tick(self, now: float, load: Load, states: Mapping[str, Sequence[StageState]]) -> None:  # noqa: ARG002
        most = self.parameters.threshold
        self._overloaded = next((name for name, told in states.items() if _queueing(told) > most), "")


def _queueing(states: Sequence[StageState]) -> float:
    weight = sum(state.entered for state in states)
    return sum(state.queueing * state.entered for state in states) / weight if weight > 0 else 0.0


class Lower(Pard):
    """L_sub = sum q_i + sum d_i: no batch waits. Each variant of it looks for its own worst path."""

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
        return later


@final
class Back(Lower):
    """L_sub = 0: only what lies behind the request, and this stage."""

    __slots__ = ()

    def terms(self, later: Later) -> Later:
        return Later(path=later.path)


@final
class ShortestFuture(Lower):
    """L_sub = sum d_i: later stages execute at once."""

    __slots__ = ()

    def terms(self, later: Later) -> Later:
        return replace(later, queueing=0.0)


@final
class Upper(Lower):
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


class _Bandless(Pressure):
    """The load factor with eps = 0."""

    __slots__ = ()

    def _spread(self, now: float, arriving: float) -> float:  # noqa: ARG002
        return 0.0


@final
class Instant(Pard):
    """Switches whenever mu passes 1: no band."""

    __slots__ = ()

    def __init__(self, view: StageView, parameters: PardParameters) -> None:
        super().__init__(view, parameters)
        self._pressure = view.shared.setdefault((_Bandless, view.stage), _Bandless())


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


RIVALS: Final[dict[str, type[Policy]]] = {
    "nexus": Nexus,
    "nexus-split": NexusSplit,
    "clipper++": ClipperPlusPlus,
    "back": Back,
    "sf": ShortestFuture,
    "oc": OverloadControl,
    "split": Split,
    "wcl": WorstCase,
    "lower": Lower,
    "upper": Upper,
    "fcfs": ArrivalOrder,
    "hbf": HighBudgetFirst,
    "lbf": LowBudgetFirst,
    "instant": Instant,
}
NAMES: Final = (*(name for name in POLICIES if name != "spillway"), *RIVALS, "spillway")


def setting_of(name: str) -> str:
    """Return how a pipeline names a policy: for `oc:alpha=.1`, `benchmarks.pard.rivals:OverloadControl:alpha=.1`."""
    short, *parameters = name.split(":", 1)
    kind = RIVALS.get(short)
    return name if kind is None else ":".join((__name__, kind.__name__, *parameters))
