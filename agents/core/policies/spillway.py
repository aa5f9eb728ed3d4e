"""`spillway`: PARD's estimate (eq. 3), strict only where a drop leaves room for another request.

What a drop is worth depends on the load. Where requests wait at this stage, a place in a batch that is not given to a
doubtful request goes to one that will make it: there eq. 3 decides, with a high quantile of the later batch waits.
Where none waits, a drop gains nothing but the work, and what was spent on the request before is lost: there only what
would miss its deadline even alone in every batch is refused. Otherwise a request that the first stage lets in with no
slack is refused by the next, as strict, as soon as its first wait is a little above the average; and a stage that has
time to spare would drop on behalf of a later one's queue, which is better judged there, when it is known.

* q of a later stage is its present queue over its capacity, not the mean of the last 5 s: each replica tells the
  seconds that its queue takes at full batches, and what PARD's window remembers after a burst costs nothing.
* Low Budget First is the rule: what is kept waiting is served after the burst. High Budget First only in a long
  overload (`overload`, as the mean of some seconds), until mu is below 1: then the queue would be served at the edge
  of its deadlines all the time.
* The batch waits are remembered from the times in which requests waited somewhere, as the estimate is for such times.
  Calm ones would let a burst begin with far too short waits. Before any were seen they are spread over [0, d].

Seconds throughout. A decision is one addition and one comparison; memory is the queue and the samples.
"""

from __future__ import annotations

from dataclasses import replace
from math import exp
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from agents.core.policies.adaptive import LOW
from agents.core.policies.pard import Pard, PardParameters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agents.core.estimates.outlook import Later
    from agents.core.policies.parameters import Parameters
    from agents.core.policy import Load, Refusal, StageState, StageView
    from agents.core.request import Request

_LASTING = 5.0  # seconds of mu's exponential mean
_RELAXED = 1.0  # the mu below which an overload is over


class SpillwayParameters(PardParameters):
    """What can be set of it. The defaults are the same for every pipeline and trace; see docs/spillway-policy.md."""

    quantile: float = Field(0.9, ge=0, le=1)
    """The share of the summed batch waits of later stages that the estimate covers where requests wait."""
    overload: float = Field(1.3, ge=1)
    """The lasting load factor above which the largest budgets come first."""
    samples: int = Field(1_000, ge=1, le=1_000_000)
    """Batch waits of a stage that are remembered, and draws from them."""


class Spillway(Pard):
    """See the module."""

    __slots__ = ("_lasting", "_least", "_overload", "_pressed", "_told")

    parameters_type: ClassVar[type[Parameters]] = SpillwayParameters
    order: ClassVar[str] = LOW
    period: ClassVar[float] = 0.1

    def __init__(self, view: StageView, parameters: SpillwayParameters) -> None:
        super().__init__(view, parameters)
        self._overload = parameters.overload
        self._pressed = False  # whether requests wait anywhere
        share = max(1, parameters.samples * view.instances // max(1, self.facts.workers))
        self._seen.waits += [self._duration * (each + 0.5) / share for each in range(share)]
        self._lasting = 0.0  # mu, smoothed
        self._told: float | None = None  # when the last synchronisation was
        self._least = self._alone(self._later)

    # The decision ----------------------------------------------------------------------------------------------

    def judge(self, now: float, starts: float, request: Request) -> Refusal | None:
        """Refuse what would end too late: by eq. 3 where others wait here, else only what surely would."""
        later = self._later if self._predict is None else self.needs(request)
        if len(self._waiting):
            needed = self._needed if self._predict is None else self._duration + later.total
        else:
            needed = self._least if self._predict is None else self._alone(later)
        if starts + needed > request.deadline:
            return self._short(now, starts, request)
        self._seen.delays.append(now - request.arrived)
        if self._pressed:
            self._seen.waits.append(starts - now)
        return None

    def _alone(self, later: Later) -> float:
        """Seconds from the start of its batch to its end for a request that never waits and is alone in each batch."""
        facts = self.view.facts
        ways = (self.view.stage, *later.path)
        return later.transfers + sum(facts[stage].duration(1) for stage in ways if stage in facts)

    # What passes between stages --------------------------------------------------------------------------------

    def report(self, now: float, load: Load) -> StageState | None:
        """Tell what this queue saw, and for q how long what waits now will take."""
        state = self._seen.report(now, load, hbf=self._high)
        queueing = load.queued * self._duration / (self.facts.batch * self.view.instances)
        return replace(state, queueing=queueing, entered=float(self.view.instances))

    def tick(self, now: float, load: Load, states: Mapping[str, Sequence[StageState]]) -> None:
        """Find the estimate, whether requests wait anywhere, and the order, anew."""
        super().tick(now, load, states)
        self._least = self._alone(self._later)
        self._pressed = any(state.queueing > 0 for stage in states.values() for state in stage)
        span = self.view.period if self._told is None else max(0.0, now - self._told)
        self._told = now
        arriving = sum(state.arrival_rate for state in states.get(self.view.stage, ()))
        mu = arriving * self._duration / (self.facts.workers * self.facts.batch)
        self._lasting += (mu - self._lasting) * (1.0 - exp(-span / _LASTING))
        if self._lasting > self._overload:
            self._high = True
        elif self._lasting < _RELAXED:
            self._high = False
