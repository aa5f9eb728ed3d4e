"""PARD (section 4): a request is dropped at t_b when its estimated end lies behind its deadline.

Eq. 3: L = (t_e - t_s + d_k) + sum q_i + sum d_i + w_k, over the worst path behind this stage. L_sub, the last three
terms, is the outlook's, renewed at every synchronisation; so a decision is one addition and one comparison. d_k is that
of a batch of the planned size, or with `duration=recent` of those that form. Behind the last stage only the gate is
left: w is that hop's.

Where the estimate refuses everything, one request a second is let in all the same, a *probe*: without it no message
would show that hops and batches are fast again. It is the first of its second by t_s, so that the stages before a join,
and those behind this one, take the same request for it.

Derive from `Pard` for another L_sub (`later`), another order (`order`), or another line to wait in.
"""

from __future__ import annotations

from math import floor, inf
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from spillway.agents.core.estimates.outlook import ANY, Later, Outlook
from spillway.agents.core.policies.adaptive import Adaptive, Recording
from spillway.agents.core.policy import Shortfall
from spillway.lineage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spillway.agents.core.policy import Load, Parameters, Refusal, StageState, StageView
    from spillway.agents.core.request import Path, Request


class PathParameters(Recording):
    """What can be set of all that look at the later stages."""

    quantile: float = Field(0.1, ge=0, le=1)
    """lambda: the share of the summed batch waits of later stages that the estimate covers."""
    paths: Literal["max", "predicted", "oracle"] = "max"
    """The later paths whose worst counts: all that are open, those that earlier requests foretell, or the true one."""


class PardParameters(PathParameters):
    """What can be set of PARD."""

    duration: Literal["planned", "recent"] = "planned"
    """Whose duration d is: that of a batch of the planned size, or the mean of the batches that lately ended."""


def foresight(view: StageView, paths: str, share: float) -> Callable[[Request], Path] | None:
    """Give what tells a request's choices beforehand; None where all paths count. UsageError for a live oracle."""
    told = view.foresight.get(paths)
    if told is not None:
        return lambda request: told(request, share)
    if paths == "oracle" and view.foresight:
        raise UsageError(
            "paths=oracle works only in the simulator: a live stage cannot know a choice before it is made"
        )
    return None


class Pard(Adaptive):
    """The whole of PARD."""

    __slots__ = ("_later", "_let_in", "_needed", "_outlook", "_predict", "_recent")

    parameters_type: ClassVar[type[Parameters]] = PardParameters

    def __init__(self, view: StageView, parameters: PathParameters) -> None:
        super().__init__(view, parameters)
        self._predict = foresight(view, parameters.paths, parameters.quantile)
        self._recent = isinstance(parameters, PardParameters) and parameters.duration == "recent"
        self._outlook: Outlook = view.shared.setdefault(
            (Outlook, parameters.quantile, parameters.samples, self._recent),
            Outlook(view, parameters.quantile, parameters.samples, recent=self._recent),
        )
        if self._recent:
            self._duration = self._outlook.duration(view.stage)
        self._let_in = inf  # t_s of the last that the estimate let in; inf before it refused any
        self._later = self.later(ANY)
        self._needed = self._duration + self._later.total

    def later(self, choices: Path) -> Later:
        """Give the terms of the stages behind this one, as far as `choices` leave them open."""
        return self._outlook.later(self.view.stage, choices)

    def needs(self, request: Request) -> Later:
        if self._predict is None:
            return self._later
        return self.later({**self._predict(request), **request.path})

    def judge(self, now: float, starts: float, request: Request) -> Refusal | None:
        needed = self._needed if self._predict is None else self._duration + self.needs(request).total
        if starts + needed > request.deadline:
            if not self._probe(now, request):
                return self._short(now, starts, request)
        elif request.sent > self._let_in:
            self._let_in = request.sent
        self._seen.delays.append(now - request.arrived)
        self._seen.waits.append(starts - now)
        return None

    def _probe(self, now: float, request: Request) -> bool:
        """Whether to let in what is refused, as nothing but a probe a second has been let in for at least a second."""
        self._let_in = min(self._let_in, now)
        second = floor(request.sent)
        if second < floor(self._let_in) + 2 or request.deadline < now:
            return False
        self._let_in = second - 1.0  # so that the next probe is one of the next second
        return True

    def _short(self, now: float, starts: float, request: Request) -> Shortfall:
        later = self.needs(request)
        return Shortfall(
            self.view.stage,
            now=now,
            starts=starts,
            sent=request.sent,
            deadline=request.deadline,
            duration=self._duration,
            queueing=later.queueing,
            execution=later.execution,
            waits=later.waits,
        )

    def tick(self, now: float, load: Load, states: Mapping[str, Sequence[StageState]]) -> None:
        super().tick(now, load, states)
        self._outlook.hear(now, states)
        if self._recent:  # the order still goes by the capacity of planned batches
            self._duration = self._outlook.duration(self.view.stage)
        self._later = self.later(ANY)
        self._needed = self._duration + self._later.total
