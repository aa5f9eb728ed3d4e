"""The order of PARD (section 4.3), and the report and tick that it needs; what it judges by is up to the subclass.

A DEPQ on the remaining budget: High Budget First while the stage is overloaded, Low Budget First otherwise, switched
by `agents.core.estimates.pressure`. What High Budget First never takes leaves at the low end, where nothing has to be
searched: with every batch that starts while something waits, and with every tick. So it is told one batch, or one
period, after its deadline at the latest, and the queue never holds more than one SLO's arrivals for longer than that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from agents.core.depq import Depq
from agents.core.estimates.observed import SAMPLES, Observed
from agents.core.estimates.pressure import Pressure
from agents.core.estimates.window import DEFAULT as WINDOW
from agents.core.policies.parameters import Parameters
from agents.core.policy import Policy, Refusal, StageFacts
from lineage import reasons

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agents.core.policy import Load, StageState, StageView
    from agents.core.request import Request

ADAPTIVE, HIGH, LOW, INSTANT = "adaptive", "high", "low", "instant"


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

    @property
    def pressure(self) -> Pressure:
        return self._pressure

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
        """Find the order anew."""
        facts = self.facts
        self._duration = load.duration or facts.duration(facts.batch)
        if self.order in (ADAPTIVE, INSTANT):
            capacity = facts.workers * facts.batch / self._duration if self._duration > 0 else 0.0
            steady = self.order == ADAPTIVE
            self._high = self._pressure.hear(now, states.get(self.view.stage, ()), capacity, steady=steady)


def _unknown(_count: int, /) -> float:
    return 0.0
