"""The order of PARD (section 4.3), and the report and tick that it needs; what it judges by is up to the subclass.

A DEPQ on the remaining budget: High Budget First while the stage is overloaded, Low Budget First otherwise, switched
by `Pressure`. What High Budget First never takes leaves at the low end, where nothing has to be
searched: with every batch that starts while something waits, and with every tick. So it is told one batch, or one
period, after its deadline at the latest, and the queue never holds more than one SLO's arrivals for longer than that.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field
from sortedcontainers import SortedList

from spillway.agents.core.estimates.observed import SAMPLES, Observed
from spillway.agents.core.estimates.window import DEFAULT as WINDOW
from spillway.agents.core.policy import Parameters, Policy, Refusal, StageFacts
from spillway.lineage import reasons

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spillway.agents.core.policy import Load, StageState, StageView
    from spillway.agents.core.request import Request


# The double-ended priority queue of PARD (section 4.3): what waits, by remaining latency budget.
#
# At one instant the order by remaining budget is the order by deadline, so the queue keeps that and never sorts anew.
# Of equal deadlines the one that came first leaves first at the low end, last at the high end. Adding and taking cost
# O(log n). The sorted list is that of `sortedcontainers`: lists of lists that C code bisects, which is faster in
# CPython than a min-max heap written in Python, and gives both ends.


class Depq:
    """Requests by deadline; both ends can be taken."""

    __slots__ = ("_turn", "_waiting")

    def __init__(self) -> None:
        # (deadline, place in the order of arrival, request); places differ, so requests are never compared.
        self._waiting: SortedList[tuple[float, int, Request]] = SortedList()
        self._turn = 0

    def push(self, request: Request) -> None:
        self._turn += 1
        self._waiting.add((request.deadline, self._turn, request))

    def pop_low(self) -> Request | None:
        return self._waiting.pop(0)[2] if self._waiting else None

    def pop_high(self) -> Request | None:
        return self._waiting.pop()[2] if self._waiting else None

    def pop_expired(self, now: float) -> Request | None:
        """Take the request with the smallest budget if that is used up; looks at no other."""
        waiting = self._waiting
        return waiting.pop(0)[2] if waiting and waiting[0][0] < now else None

    @property
    def latest(self) -> float:
        """The deadline of the request with the largest budget; of an empty queue, for ever ago."""
        return self._waiting[-1][0] if self._waiting else float("-inf")

    def __len__(self) -> int:
        return len(self._waiting)

    def remove(self, unwanted: Callable[[Request], bool]) -> list[Request]:
        removed = [item for item in self._waiting if unwanted(item[2])]
        for item in removed:
            self._waiting.remove(item)
        return [request for _, _, request in removed]


# How loaded a stage is, and which order follows from it: PARD's load factor and delayed transition (section 4.3).
#
# mu = T_in / T_m: the arrivals of the whole stage over the last second (or period, if that is longer), over what its
# workers can do in full batches. eps = sum |T_in - T_s| / sum T_in over the last 30 s, T_s the mean of the last 5 s.
# Every replica works mu and eps out from the same messages, so replicas agree as soon as they have heard the same.
# Within the band the order stays; a replica that is new there takes that of the majority of the others.

SMOOTHED = 5.0  # seconds of T_s
REMEMBERED = 30.0  # seconds of eps
_LEAST = 1.0  # seconds of arrivals that make T_in, however short the period
_SLACK = 1e-6


def high_first(high: bool, load: float, band: float) -> bool:  # noqa: FBT001 - the state, not a switch
    """Say whether the high budgets come first from now on, if they did (`high`) or did not until now.

    `load`: mu. `band`: eps. Above 1 + eps they do, below 1 - eps they do not, between the two nothing changes.
    """
    if load > 1.0 + band:
        return True
    if load < 1.0 - band:
        return False
    return high


class Pressure:
    """One stage's load factor and band, and the order that is to be; shared by the queues of a process."""

    def __init__(self) -> None:
        self.load = 0.0  # mu
        self.band = 0.0  # eps
        self.high = False  # new stages start with the low budgets first
        self._rates: deque[tuple[float, float]] = deque()  # (at, arrivals a second), of each synchronisation
        self._seen: deque[tuple[float, float, float]] = deque()  # when, T_in, |T_in - T_s|
        self._states: Sequence[StageState] | None = None
        self._heard = -1.0
        self._first = True

    def hear(self, now: float, states: Sequence[StageState], capacity: float) -> bool:
        """Take in what the stage's replicas last said; say whether the high budgets come first.

        `capacity`: T_m, requests a second.
        """
        if now == self._heard and states is self._states:
            return self.high
        first, self._first = self._first, False
        self._states, self._heard = states, now
        arriving = self._arriving(now, sum(state.arrival_rate for state in states))
        self.band = self._spread(now, arriving)
        self.load = arriving / capacity if capacity > 0 else 0.0
        if first:
            self.high = 2 * sum(state.hbf for state in states) > len(states)
        self.high = high_first(self.high, self.load, self.band)
        return self.high

    def _arriving(self, now: float, rate: float) -> float:
        """T_in: the mean rate of the last second, or of the last period."""
        self._rates.append((now, rate))
        while now - self._rates[0][0] >= max(_LEAST, SMOOTHED) - _SLACK:
            if len(self._rates) == 1:
                break
            self._rates.popleft()
        recent = [seen for at, seen in self._rates if now - at < _LEAST - _SLACK]
        return sum(recent) / len(recent)

    def _spread(self, now: float, arriving: float) -> float:
        """eps; T_s is the mean of the last five seconds."""
        smoothed = sum(rate for _, rate in self._rates) / len(self._rates)
        self._seen.append((now, arriving, abs(arriving - smoothed)))
        while now - self._seen[0][0] >= REMEMBERED - _SLACK:
            self._seen.popleft()
        total = sum(each for _, each, _ in self._seen)
        return sum(each for _, _, each in self._seen) / total if total > 0 else 0.0


ADAPTIVE, HIGH, LOW = "adaptive", "high", "low"


class Recording(Parameters):
    """What a queue remembers of its requests."""

    window: Annotated[float, Field(gt=0)] | Literal["auto"] = WINDOW
    """Seconds of the queueing delay's window; auto: 2 to 6, by how bursty the arrivals have been (section 5.4)."""
    samples: int = Field(SAMPLES, ge=1, le=1_000_000)
    """M: batch waits of a stage that are remembered, and draws from them."""


class Adaptive(Policy):
    """Drops nothing but what has expired; orders by budget as PARD does."""

    __slots__ = ("_duration", "_high", "_pressure", "_seen", "_waiting", "parameters")

    parameters_type: ClassVar[type[Parameters]] = Recording
    order: ClassVar[str] = ADAPTIVE

    def __init__(self, view: StageView, parameters: Recording) -> None:
        super().__init__(view)
        self.parameters = parameters
        window = None if parameters.window == "auto" else parameters.window
        self._seen = Observed(view, window, parameters.samples)
        self._waiting = Depq()
        self._high = self.order == HIGH
        self._pressure: Pressure = view.shared.setdefault((Pressure, view.stage, self.order), Pressure())
        self._duration = self.facts.duration(self.facts.batch)  # d_k

    @property
    def facts(self) -> StageFacts:
        """What is planned for this stage; nothing is, where a stage stands alone."""
        return self.view.facts.get(self.view.stage) or StageFacts(1, _unknown, self.view.instances)

    @property
    def high_first(self) -> bool:
        return self._high

    # The order -------------------------------------------------------------------------------------------------

    def push(self, now: float, request: Request) -> None:  # noqa: ARG002
        self._waiting.push(request)

    def pop(self, now: float) -> Request | None:  # noqa: ARG002
        return self._waiting.pop_high() if self._high else self._waiting.pop_low()

    def fill(
        self, now: float, starts: float, room: int, batch: list[Request], drops: list[tuple[Request, Refusal]]
    ) -> None:
        """Rid the low end of what has expired, then move over what is let in."""
        if self._high:
            self.expire(now, drops)
        super().fill(now, starts, room, batch, drops)

    def expire(self, now: float, drops: list[tuple[Request, Refusal]]) -> None:
        while (request := self._waiting.pop_expired(now)) is not None:
            late = 1000 * (now - request.deadline)
            drops.append((request, Refusal(reasons.EXPIRED, f"{late:.1f} ms past its deadline while it waited")))

    def __len__(self) -> int:
        return len(self._waiting)

    def remove(self, unwanted: Callable[[Request], bool]) -> list[Request]:
        return self._waiting.remove(unwanted)

    # What passes between stages --------------------------------------------------------------------------------

    def report(self, now: float, load: Load) -> StageState | None:
        return self._seen.report(now, load, hbf=self._high)

    def tick(self, now: float, load: Load, states: Mapping[str, Sequence[StageState]]) -> None:
        facts = self.facts
        self._duration = load.duration or facts.duration(facts.batch)
        if self.order == ADAPTIVE:
            capacity = facts.workers * facts.batch / self._duration if self._duration > 0 else 0.0
            self._high = self._pressure.hear(now, states.get(self.view.stage, ()), capacity)


def _unknown(_count: int, /) -> float:
    return 0.0
