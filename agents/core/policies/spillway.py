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
  fuller batch together (`Delays`). PARD's full batches and waits are too long for every
  stage behind the slowest, and a queue kept short by what never happens is drops.
* These delays are remembered from the times in which requests waited somewhere, as the estimate is for such times.
  Calm ones would let a burst begin with far too short delays. Before any were seen they are reckoned. A wait counts
  as it was when the batch really started: what was expected of it errs on one side when batches take longer.
* The quantile follows from the whole waiting line (`Spillway.fill`). As long as the last in it will be in time if all
  before it are served, a drop saves nothing but doubtful places: the quantile is low while requests have waited for
  less than `lasting`, as most bursts are over soon and what is let in at their end finds the later stages idle. Where
  the last will be late some have to be dropped anyway, so let it be the doubtful ones; and where it will be late by
  more than `deep`, or the line has not been empty for `long`, all that have the least doubt: LBF serves everybody at
  the edge of what is let in, and a quantile of .9 would waste a tenth of all work for as long as the overload lasts.
  Each drop shortens the line, so it is looked at again: as few are dropped as have to be.
* Low Budget First always: what is kept waiting is served after the burst.

Seconds throughout. A decision is one addition and one comparison, and once a batch a look at the end of the line;
memory is the queue and the samples.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import ceil
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field

from spillway.agents.core.estimates.outlook import ANY, Later, Outlook
from spillway.agents.core.policies.adaptive import LOW
from spillway.agents.core.policies.pard import Pard, PathParameters

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from spillway.agents.core.policy import Load, Parameters, Refusal, Shortfall, StageFacts, StageState, StageView
    from spillway.agents.core.request import Request


# How much longer a stage takes a request than a batch of one would: what `spillway` adds up over the later stages.
#
# PARD adds up d of full batches, and of the batch waits a quantile. But a stage behind the slowest one never runs full
# batches, and one that is full has the longest waits: both depend on the same thing. So one figure is observed of every
# request, its *delay* at the stage: t_e - t_b, and by how much its batch took longer than a batch of one. Eq. 3 then
# has the batches of one for sum d_i, and for w_k a quantile of the summed delays. How queries are spread over the
# workers, how full batches become and how they come in clumps is all in what was observed, and nothing of it has to be
# known.
#
# One set of draws serves all quantiles. It is renewed with every synchronisation: most bursts are over in a few
# seconds. Seconds throughout.


class Delays(Outlook):
    """An outlook in which d is that of a batch of one, and the waits are delays, of any quantile."""

    redrawn: ClassVar[float] = 0.0

    def __init__(self, view: StageView, share: float, draws: int) -> None:
        super().__init__(view, share, draws)
        self._expected = {stage: expected(view, stage, draws) for stage in view.facts}
        self._sums = cache(lambda path: np.sort(self._summed(path)))
        self._of_draws.append(self._sums)

    def _waiting(self, path: tuple[str, ...], share: float) -> float:
        sums = self._sums(path)
        return float(sums[max(0, ceil(share * len(sums)) - 1)]) if len(sums) else 0.0

    def _execution(self, stage: str) -> float:
        facts = self._facts.get(stage)
        full = facts.duration(facts.batch) if facts is not None else 0.0
        return self.duration(stage) * (facts.duration(1) / full if facts is not None and full > 0 else 1.0)

    def _drawn_waits(self, stage: str) -> NDArray[np.float64] | None:
        values = self._expected.get(stage)
        if values is not None and self._anything and not self._states.get(stage):
            return self._sampler.draw(self._place(stage), values)
        return super()._drawn_waits(stage)


def expected(view: StageView, stage: str, count: int) -> NDArray[np.float64]:
    """Give delays to reckon with before any were seen: waits spread over a batch, of the size that will settle.

    That is the batch that forms while one as large runs, if as much comes as the stages before it let through.
    """
    facts = view.facts[stage]
    taken = facts.duration(settled(facts, _let_through(view, stage)))
    return np.asarray((np.arange(count) + 0.5) * (taken / count) + taken - facts.duration(1), np.float64)


def settled(facts: StageFacts, rate: float) -> int:
    """Give the size of batch for which fewer than that come while it runs, of `rate` requests a second."""
    each = rate / max(1, facts.workers)
    return next((n for n in range(1, facts.batch) if n > each * facts.duration(n) + 1e-9), facts.batch)


def _let_through(view: StageView, stage: str) -> float:
    """Requests a second that the slowest of the stages up to this one serves in full batches."""
    before = {stage}
    while more := {name for name in _senders(view.successors, before) if name in view.facts} - before:
        before |= more
    return min(_speed(view.facts[name]) for name in before)


def _senders(successors: Mapping[str, tuple[str, ...]], stages: Iterable[str]) -> set[str]:
    return {name for name, targets in successors.items() if not set(targets).isdisjoint(stages)}


def _speed(facts: StageFacts) -> float:
    full = facts.duration(facts.batch)
    return facts.workers * facts.batch / full if full > 0 else float("inf")


_RECKONED = 100  # delays of a stage that stand for those seen, before there are any
_LIKELY = 0.1  # PARD's quantile: of the hops that even a request that never waits has before it
_SURE = 1.0  # the quantile where an overload is deep or long: the longest delays there were


class SpillwayParameters(PathParameters):
    """What can be set of it. The defaults are the same for every pipeline and trace; see docs/results/policies.md."""

    quantile: float = Field(0.9, ge=0, le=1)
    """The share of the summed delays of later stages that the estimate covers where requests wait."""
    at_first: float = Field(0.7, ge=0, le=1)
    """The same in the beginning."""
    lasting: float = Field(0.5, ge=0)
    """Seconds that the beginning lasts, from when the first one had to wait."""
    short: float = Field(0.97, ge=0, le=1)
    """The same where the last of those that wait would be late."""
    deep: float = Field(0.05, ge=0)
    """Seconds; where it would be late by more, the estimate covers all delays."""
    long: float = Field(2.0, ge=0)
    """Seconds of waiting after which it does, too, where the last would be late."""
    samples: int = Field(1_000, ge=1, le=1_000_000)
    """Delays of a stage that are remembered, and draws from them."""


class Spillway(Pard):
    """See the module."""

    parameters_type: ClassVar[type[Parameters]] = SpillwayParameters
    order: ClassVar[str] = LOW
    period: ClassVar[float] = 0.1

    def __init__(self, view: StageView, parameters: SpillwayParameters) -> None:
        super().__init__(view, parameters)
        facts = self.facts
        key = (Delays, parameters.quantile, parameters.samples)
        self._delays: Delays = view.shared.get(key) or Delays(view, parameters.quantile, parameters.samples)
        self._outlook = view.shared[key] = self._delays
        self._set = parameters
        self._share = self._calm = parameters.quantile  # that counts now; and where nothing in the line would be late
        self._tense = parameters.short  # where something would be, a little
        self._late = 0.0  # seconds by which the last of the line would be late
        self._each = 0.0  # seconds by which each request in it lets those behind it wait longer
        self._shares: dict[float, float] = {}  # by quantile, seconds needed from t_e on where others wait
        self._since = 0.0  # when the first of those that wait came to wait
        alone = facts.duration(1)
        self._full = facts.duration(facts.batch)  # as profiled
        self._alone = alone / self._full if self._full > 0 else 1.0  # a batch of one, over a full one
        self._longer = [facts.duration(max(1, size)) - alone for size in range(facts.batch + 1)]
        self._pressed = False  # whether requests wait anywhere
        self._spared = 0.0
        if view.stage in view.facts:
            reckoned = max(1, _RECKONED * view.instances // max(1, facts.workers))
            self._seen.waits += expected(view, view.stage, reckoned).tolist()
        self._renew()

    def push(self, now: float, request: Request) -> None:
        if not len(self._waiting):
            self._since = now
        self._waiting.push(request)

    # The decision ----------------------------------------------------------------------------------------------

    def fill(
        self, now: float, starts: float, room: int, batch: list[Request], drops: list[tuple[Request, Refusal]]
    ) -> None:
        """Look at the end of the line, then move over what is let in."""
        of, waited = self._set, now - self._since
        self._calm = of.quantile if waited >= of.lasting else of.at_first
        self._tense = of.short if waited < of.long else _SURE
        turn = starts + len(self._waiting) * self._each
        self._late = turn + self._shares[self._calm] - self._waiting.latest
        self._choose()
        super().fill(now, starts, room, batch, drops)

    def _choose(self) -> None:
        if self._late <= 0:
            self._share = self._calm
        else:
            self._share = self._tense if self._late <= self._set.deep else _SURE

    def judge(self, now: float, starts: float, request: Request) -> Refusal | None:
        """Refuse what would end too late: by eq. 3 where others wait here, else only what surely would."""
        others = len(self._waiting)
        if not others:
            needed = self._least if self._predict is None else self._at_least(self.needs(request))
            if starts <= now:
                needed -= self._spared
        elif self._predict is None:
            needed = self._shares[self._share]
        else:
            needed = self._duration + self.needs(request).total
        if starts + needed > request.deadline:
            if not self._probe(now, request):
                refusal = self._short(now, starts, request)
                if others:
                    self._late -= self._each
                    self._choose()
                return refusal
        elif request.sent > self._let_in:
            self._let_in = request.sent
        self._seen.delays.append(now - request.arrived)
        return None

    def needs(self, request: Request) -> Later:
        """Give the terms of the later stages for one request, with the quantile that counts now."""
        choices = ANY if self._predict is None else {**self._predict(request), **request.path}
        return self._delays.later(self.view.stage, choices, self._share)

    def _at_least(self, later: Later) -> float:
        """Seconds from the start of its batch on for a request that never waits and is alone in each batch."""
        return self._duration * self._alone + later.execution + self._delays.hops(later.path, _LIKELY)

    def _short(self, now: float, starts: float, request: Request) -> Shortfall:
        refusal = super()._short(now, starts, request)
        if not len(self._waiting):
            refusal.duration *= self._alone
            refusal.queueing = 0.0
            refusal.waits = self._delays.hops(self.needs(request).path, _LIKELY)
            refusal.waits -= self._spared if starts <= now else 0.0
        return refusal

    # What passes between stages --------------------------------------------------------------------------------

    def started(self, now: float, requests: Sequence[Request]) -> None:
        if self._pressed:
            longer = self._longer[min(len(requests), len(self._longer) - 1)]
            if self._full > 0:
                longer *= self._duration / self._full
            self._seen.waits += [now - request.entered + longer for request in requests]

    def report(self, now: float, load: Load) -> StageState | None:
        """Tell what this queue saw, and for q how long what waits now will take."""
        state = self._seen.report(now, load)
        return replace(state, queueing=load.queued * self._each, entered=float(self.view.instances))

    def tick(self, now: float, load: Load, states: Mapping[str, Sequence[StageState]]) -> None:
        super().tick(now, load, states)
        self._pressed = any(state.queueing > 0 for stage in states.values() for state in stage)
        self._renew()

    def _renew(self) -> None:
        of, stage = self._set, self.view.stage
        self._each = self._duration / (self.facts.batch * self.view.instances)
        self._shares = {
            share: self._duration + self._delays.later(stage, share=share).total
            for share in (of.at_first, of.quantile, of.short, _SURE)
        }
        self._least = self._at_least(self._later)
        # What an idle instance of the last stage takes at once keeps nobody waiting, and only the gate is left: a drop
        # would save nothing, and the way may be short this time.
        self._spared = 0.0 if self._later.path else self._delays.hops((), _LIKELY)
