"""`spillway`: PARD's estimate (eq. 3) with delays as they are, strict only where a drop makes room for another request.

What a drop is worth depends on the load. Where requests wait at this stage, a place in a batch that is not given to a
doubtful request goes to one that will make it: there eq. 3 decides, with a high quantile. Where none waits, a drop
gains nothing but the work, and what was spent on the request before is lost: there only what would miss its deadline
even alone in every batch is refused. Otherwise a request that the first stage lets in with no slack is refused by the
next, as strict, as soon as its first wait is a little above the average; and a stage that has time to spare would drop
on behalf of a later one's queue, which is better judged there, when it is known.

* q of a later stage is its present queue over its capacity, not the mean of the last 5 s: each replica tells the
  seconds that its queue takes at full batches, and what PARD's window remembers after a burst costs nothing.
* d and w of later stages are those of a batch of one, and a quantile of what was observed on top of it, wait and
  fuller batch together (`agents.core.policies.spillway_times`). PARD's full batches and waits are too long for every
  stage behind the slowest, and a queue kept short by what never happens is drops.
* These delays are remembered from the times in which requests waited somewhere, as the estimate is for such times.
  Calm ones would let a burst begin with far too short delays. Before any were seen they are reckoned.
* The quantile is lower as long as requests have waited for less than `lasting`: most bursts are over soon, and what is
  let in at their end finds the later stages idle. The longer one lasts, the more of what is doubtful is wasted.
* Low Budget First always: what is kept waiting is served after the burst.

Seconds throughout. A decision is one addition, one comparison and a look into a dictionary; memory is the queue, the
forming batches and the samples.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from agents.core.estimates.outlook import ANY
from agents.core.policies.adaptive import LOW
from agents.core.policies.pard import Pard, PardParameters
from agents.core.policies.spillway_times import Delays, Forming, expected

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agents.core.estimates.outlook import Later
    from agents.core.policies.parameters import Parameters
    from agents.core.policy import Load, Refusal, StageState, StageView
    from agents.core.request import Request


class SpillwayParameters(PardParameters):
    """What can be set of it. The defaults are the same for every pipeline and trace; see docs/spillway-policy.md."""

    quantile: float = Field(0.9, ge=0, le=1)
    """The share of the summed delays of later stages that the estimate covers where requests wait."""
    at_first: float = Field(0.7, ge=0, le=1)
    """The same in the beginning."""
    lasting: float = Field(0.5, ge=0)
    """Seconds that the beginning lasts, from when the first one had to wait."""
    samples: int = Field(1_000, ge=1, le=1_000_000)
    """Delays of a stage that are remembered, and draws from them."""


class Spillway(Pard):
    """See the module."""

    __slots__ = ("_alone", "_brief", "_briefly", "_forming", "_full", "_lasting", "_least", "_pressed", "_since")

    parameters_type: ClassVar[type[Parameters]] = SpillwayParameters
    order: ClassVar[str] = LOW
    period: ClassVar[float] = 0.1

    def __init__(self, view: StageView, parameters: SpillwayParameters) -> None:
        super().__init__(view, parameters)
        facts = self.facts
        self._outlook = _delays(view, parameters.quantile, parameters.samples)
        self._brief = _delays(view, parameters.at_first, parameters.samples)
        self._lasting = parameters.lasting
        self._since = 0.0  # when the first of those that wait came to wait
        self._full = facts.duration(facts.batch)  # as profiled
        self._alone = facts.duration(1) / self._full if self._full > 0 else 1.0  # a batch of one, over a full one
        self._pressed = False  # whether requests wait anywhere
        self._forming = Forming(facts, view.instances)
        if view.stage in view.facts:
            share = max(1, parameters.samples * view.instances // max(1, facts.workers))
            self._seen.waits += expected(view, view.stage, share).tolist()
        self._renew()

    def push(self, now: float, request: Request) -> None:
        """Take a request to where its budget puts it."""
        if not len(self._waiting):
            self._since = now
        self._waiting.push(request)

    # The decision ----------------------------------------------------------------------------------------------

    def judge(self, now: float, starts: float, request: Request) -> Refusal | None:
        """Refuse what would end too late: by eq. 3 where others wait here, else only what surely would."""
        if self._predict is not None:
            needed = self._foretold(now, request)
        elif not len(self._waiting):
            needed = self._least
        else:
            needed = self._needed if now - self._since >= self._lasting else self._briefly
        if starts + needed > request.deadline:
            return self._short(now, starts, request)
        self._seen.delays.append(now - request.arrived)
        delays = self._forming.enter(now, starts)
        if self._pressed:
            self._seen.waits += delays
        return None

    def _foretold(self, now: float, request: Request) -> float:
        """Seconds from t_e on for a request whose path is foretold."""
        assert self._predict is not None
        later = self.needs(request)
        if not len(self._waiting):
            return self._at_least(later)
        if now - self._since < self._lasting:
            later = self._brief.later(self.view.stage, {**self._predict(request), **request.path})
        return self._duration + later.total

    def _at_least(self, later: Later) -> float:
        """Seconds from the start of its batch on for a request that never waits and is alone in each batch."""
        return self._duration * self._alone + later.execution + later.transfers

    # What passes between stages --------------------------------------------------------------------------------

    def report(self, now: float, load: Load) -> StageState | None:
        """Tell what this queue saw, and for q how long what waits now will take."""
        delays = self._forming.started(now)
        if self._pressed:
            self._seen.waits += delays
        state = self._seen.report(now, load)
        queueing = load.queued * self._duration / (self.facts.batch * self.view.instances)
        return replace(state, queueing=queueing, entered=float(self.view.instances))

    def tick(self, now: float, load: Load, states: Mapping[str, Sequence[StageState]]) -> None:
        """Find the estimate, and whether requests wait anywhere, anew."""
        super().tick(now, load, states)
        self._brief.hear(now, states)
        self._pressed = any(state.queueing > 0 for stage in states.values() for state in stage)
        self._renew()

    def _renew(self) -> None:
        """Work out what is needed from t_e on, with others waiting and without."""
        self._later = self.later(ANY)
        self._needed = self._duration + self._later.total
        self._briefly = self._duration + self._brief.later(self.view.stage, ANY).total
        self._least = self._at_least(self._later)
        self._forming.scale = self._duration / self._full if self._full > 0 else 1.0


def _delays(view: StageView, share: float, samples: int) -> Delays:
    """Give the process's outlook for a quantile."""
    key = (Delays, share, samples)
    found = view.shared.get(key)
    if found is None:
        found = view.shared[key] = Delays(view, share, samples)
    return found
