"""Dropping in a pipeline with autoregressive stages (section 7 of the PARD paper), and what its estimates rest on.

Before a request joins the running batch, enters a forming batch or takes a thread, at t_b = now, it is dropped if it
is estimated to miss its deadline:

    t_e + own + the worst path of later stages' (q_i + d_i) + w > deadline

own, by the kind of stage: `Recent`, the recent average of what the stage took (the paper's rewrite and search);
`Batched`, the profile of the planned batch (retrieve); `Prefill`, the profile at the input's length (generate, whose
first token is what counts); `Generate`, the time to a last token, from the recent seconds per token and a length:
the request's true one (the paper's oracle) or, learned, the one that a share `chance` of its like does not exceed.
d_i is what the stage itself tells of an average request. w is the `quantile` of the later batch waits, as PARD's;
under continuous batching there are none. Each policy object belongs to one queue, as all policies do.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from agents.core.generation import Generation
from agents.core.policies.fifo import Fifo
from agents.core.policy import Load, Refusal, Shortfall, StageState, StageView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agents.core.generation import TokenProfile
    from agents.core.generation_lengths import LengthsByPrompt
    from agents.core.request import Request

WINDOW = 5.0  # seconds that an average looks back, as PARD's
QUANTILE = 0.1  # lambda of eq. 3
CHANCE = 0.5  # a learned length is the one that this share of the like do not exceed
_REMEMBERED = 512  # batch waits kept


class RecentMean:
    """The mean of what was seen in the last `window` seconds, the newer the heavier: linearly from 1 down to 0.

    None where the window is empty. An old mean must not stand on: one that refuses everybody would never be corrected.
    """

    __slots__ = ("_seen", "_sum", "_timed", "_times", "_window")

    def __init__(self, window: float = WINDOW) -> None:
        self._window = window
        self._seen: deque[tuple[float, float]] = deque()
        self._sum = self._timed = self._times = 0.0  # of values, of time * value, of times

    def add(self, now: float, value: float) -> None:
        """Take a value of now."""
        self._seen.append((now, value))
        self._sum += value
        self._timed += now * value
        self._times += now

    def mean(self, now: float) -> float | None:
        """Give the weighted mean as of now."""
        start = now - self._window
        seen = self._seen
        while seen and seen[0][0] <= start:
            at, value = seen.popleft()
            self._sum -= value
            self._timed -= at * value
            self._times -= at
        if not seen:
            self._sum = self._timed = self._times = 0.0  # sheds what rounding left
            return None
        weight = self._times - start * len(seen)
        return (self._timed - start * self._sum) / weight


class Own(Protocol):
    """What a stage's own work on a request will take, and what it tells others of an average one."""

    def seconds(self, now: float, request: Request) -> float:
        """Estimate what is needed from t_e on."""
        ...

    def told(self, now: float) -> float:
        """What an average request takes; 0 where nothing is known."""
        ...

    def first(self, now: float, request: Generation) -> None:
        """Learn that its first token is out."""
        ...

    def ended(self, now: float, request: Request) -> None:
        """Learn that it ended."""
        ...


class Recent:
    """The recent average of what a request took from its start to its end."""

    def __init__(self, window: float = WINDOW, profile: float = 0.0) -> None:
        """`profile`: seconds that stand in while nothing has ended lately."""
        self._took = RecentMean(window)
        self._profile = profile

    def seconds(self, now: float, request: Request) -> float:  # noqa: ARG002 - the protocol's
        """Expect the average of everybody."""
        return self.told(now)

    def told(self, now: float) -> float:
        """The average."""
        mean = self._took.mean(now)
        return self._profile if mean is None else mean

    def first(self, now: float, request: Generation) -> None:
        """Wait for its end."""

    def ended(self, now: float, request: Request) -> None:
        """Take its time into the average."""
        self._took.add(now, now - request.started)


class Batched:
    """The profile of the planned batch."""

    def __init__(self, view: StageView) -> None:
        facts = view.facts[view.stage]
        self._seconds = facts.duration(facts.batch)

    def seconds(self, now: float, request: Request) -> float:  # noqa: ARG002 - the protocol's
        """Expect a batch of the planned size."""
        return self._seconds

    def told(self, now: float) -> float:  # noqa: ARG002 - the protocol's
        """The same."""
        return self._seconds

    def first(self, now: float, request: Generation) -> None:
        """There are no tokens."""

    def ended(self, now: float, request: Request) -> None:
        """The profile does not learn."""


class Prefill:
    """The time to the first token, by the profile and the length of the input."""

    def __init__(self, profile: TokenProfile, window: float = WINDOW) -> None:
        self._profile = profile
        self._inputs = RecentMean(window)

    def seconds(self, now: float, request: Request) -> float:  # noqa: ARG002 - the protocol's
        """Expect what the profile says of this input."""
        assert isinstance(request, Generation)
        return self._profile.prefill(request.prompt)

    def told(self, now: float) -> float:
        """What the profile says of an input of recent average length."""
        mean = self._inputs.mean(now)
        return 0.0 if mean is None else self._profile.prefill(max(1, round(mean)))

    def first(self, now: float, request: Generation) -> None:
        """Take the length of its input into the average."""
        self._inputs.add(now, request.prompt)

    def ended(self, now: float, request: Request) -> None:
        """What comes after the first token does not count."""


class Generate:
    """The time to the last token: the prefill by the profile, and a length at the recent pace of a token."""

    def __init__(
        self,
        profile: TokenProfile,
        lengths: LengthsByPrompt | None,
        chance: float = CHANCE,
        window: float = WINDOW,
    ) -> None:
        """`lengths`: what is learned of them; None: the true ones are known."""
        self._profile = profile
        self._lengths = lengths
        self._chance = chance
        self._took = RecentMean(window)
        self._pace = RecentMean(window)

    def seconds(self, now: float, request: Request) -> float:
        """Expect the time of its length, true or learned."""
        assert isinstance(request, Generation)
        prefill = self._profile.prefill(request.prompt)
        pace = self._pace.mean(now)
        if pace is None:
            pace = self._profile.step(1)
        if self._lengths is None:
            return prefill + pace * (request.output - 1)
        return prefill + pace * max(0.0, self._lengths.quantile(request.prompt, self._chance) - 1)

    def told(self, now: float) -> float:
        """What an average one lately took."""
        return self._took.mean(now) or 0.0

    def first(self, now: float, request: Generation) -> None:
        """Wait for its end."""

    def ended(self, now: float, request: Request) -> None:
        """Learn its length, its time, and how long its tokens took."""
        assert isinstance(request, Generation)
        self._took.add(now, now - request.started)
        if request.output > 1:
            self._pace.add(now, (now - request.first) / (request.output - 1))
        if self._lengths is not None:
            self._lengths.observe(request.prompt, request.output)


class Foresight(Fifo):
    """Order of arrival; drops what is estimated to miss its deadline."""

    __slots__ = ("_alone", "_own", "_quantile", "_queued", "_rest", "_waits")

    def __init__(
        self, view: StageView, own: Own, window: float = WINDOW, quantile: float = QUANTILE, *, alone: bool = False
    ) -> None:
        """`alone`: leave the later stages out, which makes it reactive."""
        super().__init__(view)
        self._own = own
        self._alone = alone
        self._quantile = quantile
        self._queued = RecentMean(window)
        self._waits: deque[float] = deque(maxlen=_REMEMBERED)
        # Of the later stages, on the worst path: queueing, execution, batch waits. Before the first word of theirs,
        # their profiles stand in.
        profiles = {name: facts.duration(facts.batch) for name, facts in view.facts.items()}
        self._rest = self._worst(view.stage, {name: (0.0, seconds, 0.0) for name, seconds in profiles.items()})

    def judge(self, now: float, starts: float, request: Request) -> Refusal | None:
        """Refuse what is estimated to be late."""
        queueing, execution, waits = self._rest
        self._queued.add(now, now - request.arrived)
        self._waits.append(starts - now)
        budget = request.deadline - starts - queueing - execution - waits
        own = self._own.seconds(now, request)
        if own <= budget:
            return None
        return Shortfall(
            self.view.stage,
            now=now,
            starts=starts,
            sent=request.sent,
            deadline=request.deadline,
            duration=own,
            queueing=queueing,
            execution=execution,
            waits=waits,
        )

    def first(self, now: float, request: Generation) -> None:
        """Learn that a first token is out."""
        self._own.first(now, request)

    def ended(self, now: float, request: Request) -> None:
        """Learn that a request ended here."""
        self._own.ended(now, request)

    def report(self, now: float, load: Load) -> StageState:
        """Tell what a request lately met here."""
        return StageState(
            stage=self.view.stage,
            replica=self.view.replica,
            at=now,
            queueing=self._queued.mean(now) or 0.0,
            waits=tuple(self._waits),
            waits_seen=len(self._waits),
            duration=self._own.told(now),
            backlog=load.queued + load.forming + load.running,
        )

    def tick(self, now: float, load: Load, states: Mapping[str, Sequence[StageState]]) -> None:  # noqa: ARG002
        """Take the later stages' word; a stage that says nothing stands in with its profile."""
        terms = {}
        for name, facts in self.view.facts.items():
            heard = states.get(name, ())
            known = [state.duration for state in heard if state.duration > 0]
            duration = sum(known) / len(known) if known else facts.duration(facts.batch)
            queueing = sum(state.queueing for state in heard) / len(heard) if heard else 0.0
            waits = sorted(wait for state in heard for wait in state.waits)
            terms[name] = queueing, duration, waits[int(self._quantile * len(waits))] if waits else 0.0
        self._rest = self._worst(self.view.stage, terms)

    def _worst(self, stage: str, terms: Mapping[str, tuple[float, float, float]]) -> tuple[float, float, float]:
        """Give the terms of the slowest path behind `stage`."""
        worst = (0.0, 0.0, 0.0)
        if self._alone:
            return worst
        for name in self.view.successors.get(stage, ()):
            own, later = terms.get(name, (0.0, 0.0, 0.0)), self._worst(name, terms)
            path = (own[0] + later[0], own[1] + later[1], own[2] + later[2])
            if sum(path) > sum(worst):
                worst = path
        return worst
