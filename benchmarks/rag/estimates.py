"""What a stage's own work on a request will take: the estimates of section 7 of the PARD paper, and better ones.

`Recent`, the recent average of what the stage took (the paper's rewrite and search); `Batched`, the profile of the
planned batch (retrieve); `Prefill`, the profile at the input's length (generate, whose first token is what counts);
`Generate`, the time to a last token, from the recent seconds per token and a length: the request's true one (the
paper's oracle), or the learned one that half of its like do not exceed.

Averages are PARD's: linearly weighted over some seconds, renewed when `close` is called once a period. Where nothing
was seen lately the profile stands in. An old average must not stand on: one that makes the stage refuse everybody
would never be corrected. Seconds throughout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.rag.generation import Generation
from spillway.agents.core.estimates.window import DEFAULT, RecentMean

if TYPE_CHECKING:
    from benchmarks.rag.generation import TokenProfile
    from benchmarks.rag.lengths import LengthsByPrompt
    from spillway.agents.core.policy import StageView
    from spillway.agents.core.request import Request

_CHANCE = 0.5


class Own:
    """A stage's estimate of its own work."""

    def seconds(self, request: Request) -> float:
        raise NotImplementedError

    def first(self, now: float, request: Generation) -> None:
        """Hear of a request's first token."""

    def ended(self, now: float, request: Request) -> None:
        """Hear of a request's end."""

    def close(self, now: float) -> float:
        """Renew the averages; give what an average request takes, 0 where nothing is known."""
        raise NotImplementedError


class Average:
    """A recent mean; None where nothing was seen lately."""

    __slots__ = ("_count", "_mean", "_sum", "value")

    def __init__(self, window: float = DEFAULT) -> None:
        self._mean = RecentMean(window)
        self._sum = 0.0
        self._count = 0
        self.value: float | None = None

    def add(self, value: float) -> None:
        self._sum += value
        self._count += 1

    def close(self, now: float) -> float | None:
        self._mean.close(now, self._sum, self._count)
        self._sum, self._count = 0.0, 0
        mean, weight = self._mean.mean(now)
        self.value = mean if weight > 0 else None
        return self.value


class Recent(Own):
    """The recent average of what a request took from its start to its end."""

    def __init__(self, profile: float, window: float = DEFAULT) -> None:
        """`profile`: seconds that stand in where nothing ended lately."""
        self._took = Average(window)
        self._profile = profile

    def seconds(self, request: Request) -> float:  # noqa: ARG002 - the protocol's
        return self._profile if self._took.value is None else self._took.value

    def ended(self, now: float, request: Request) -> None:
        self._took.add(now - request.started)

    def close(self, now: float) -> float:
        return self._took.close(now) or 0.0


class Batched(Own):
    """The profile of the planned batch."""

    def __init__(self, view: StageView) -> None:
        facts = view.facts[view.stage]
        self._seconds = facts.duration(facts.batch)

    def seconds(self, request: Request) -> float:  # noqa: ARG002 - the protocol's
        return self._seconds

    def close(self, now: float) -> float:  # noqa: ARG002 - the protocol's
        return self._seconds


class Prefill(Own):
    """The time to the first token, by the profile and the length of the input."""

    def __init__(self, profile: TokenProfile, window: float = DEFAULT) -> None:
        self._profile = profile
        self._inputs = Average(window)

    def seconds(self, request: Request) -> float:
        assert isinstance(request, Generation)
        return self._profile.prefill(request.prompt)

    def first(self, now: float, request: Generation) -> None:  # noqa: ARG002 - the protocol's
        self._inputs.add(request.prompt)

    def close(self, now: float) -> float:
        mean = self._inputs.close(now)
        return 0.0 if mean is None else self._profile.prefill(max(1, round(mean)))


class Generate(Own):
    """The time to the last token: the prefill by the profile, and a length at the recent pace of a token."""

    def __init__(
        self,
        profile: TokenProfile,
        lengths: LengthsByPrompt | None,
        window: float = DEFAULT,
    ) -> None:
        """`lengths`: what is learned of them; None: the true ones are known."""
        self._profile = profile
        self._lengths = lengths
        self._took = Average(window)
        self._pace = Average(window)

    def seconds(self, request: Request) -> float:
        assert isinstance(request, Generation)
        prefill = self._profile.prefill(request.prompt)
        pace = self._profile.step(1) if self._pace.value is None else self._pace.value
        if self._lengths is None:
            return prefill + pace * (request.output - 1)
        return prefill + pace * (self._lengths.quantile(request.prompt, _CHANCE) - 1)

    def ended(self, now: float, request: Request) -> None:
        assert isinstance(request, Generation)
        self._took.add(now - request.started)
        if request.output > 1:
            self._pace.add((now - request.first) / (request.output - 1))
        if self._lengths is not None:
            self._lengths.observe(request.prompt, request.output)

    def close(self, now: float) -> float:
        self._pace.close(now)
        return self._took.close(now) or 0.0
