"""Whether features are stale: running errors of predictions, each taken before its observation was learned.

Three errors are watched, as in the thesis' section 2.4, "Model Evaluation": over all users, over the observations on
items that were drawn at random (the pool), and each user's own. Of each there is a tally: how many there were, their
sum, the mean of about the last `window`, and that of about the last ten times as many. An error is too high where its
recent mean is over `error`, and it rises too fast where the recent mean is over `rise` times the longer one.

Nothing here knows a clock: what counts is observations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from spillway.lineage.errors import UsageError
from spillway.topology.names import meant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spillway.agents.learning.velox.weights import Vector

NONE: Final = (0.0, 0.0, 0.0, 0.0)  # a tally: count, sum, recent mean, longer mean
_LONGER: Final = 10
_OF_USER: Final = 10  # a user's window is that part of all users'
_LEAST: Final = 10
_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Stale:
    """What a learner's `arguments: {stale: ...}` say. Raises UsageError for what cannot be."""

    error: float | None = None  # the most that a recent mean may be; None: any
    rise: float | None = 1.5  # how many times the longer mean the recent one may be; None: any
    users: float | None = None  # the share of users that may be over either; None: any
    window: int = 200  # observations of a recent mean
    gain: float = 0.01  # by what share new features must be better on held-out observations

    def __post_init__(self) -> None:
        limits = [each for each in (self.error, self.rise, self.users) if each is not None]
        if any(each <= 0 for each in limits) or type(self.window) is not int or self.window < _LEAST:
            raise UsageError(f"stale: 'error', 'rise' and 'users' must be above 0, and 'window' {_LEAST} or more")
        if not 0 <= self.gain < 1:
            raise UsageError("stale: 'gain' must be at least 0 and below 1")

    @property
    def users_window(self) -> int:
        return max(_LEAST, self.window // _OF_USER)

    def over(self, tally: Sequence[float] | Vector, window: int) -> str:
        """Why an error is too much; '' where it is not, or where nobody can tell yet."""
        count, _, recent, longer = tally
        if count < 2 * window:
            return ""
        if self.error is not None and recent > self.error:
            return f"{recent:.4g} over the last {window}, more than {self.error:g}"
        if self.rise is not None and recent > self.rise * longer:
            return f"{recent:.4g} over the last {window}, more than {self.rise:g} times {longer:.4g} before"
        return ""

    def why(self, told: Mapping[str, Any]) -> str:
        """Why features are stale, of what the shards tell of them (`together`); '' where they are not."""
        for name, what in (("errors", "the error is"), ("pool", "the error on random items is")):
            found = self.over(told[name], self.window)
            if found:
                return f"{what} {found}"
        share = told["stale"] / told["users"] if told["users"] else 0.0
        if self.users is not None and told["errors"][0] >= 2 * self.window and share > self.users:
            return f"{share:.0%} of the users have too high an error, more than {self.users:.0%}"
        return ""


def stale_of(told: Any) -> Stale:
    return settings_of(Stale, "stale", "{error: 0.8}", told)


def settings_of(kind: Callable[..., _Made], called: str, example: str, told: Any) -> _Made:
    """Make a dataclass of what an argument says. Raises UsageError that tells which parameters there are."""
    if not isinstance(told, Mapping):
        raise UsageError(f"{called} must be a mapping, as in {example}, not {told!r:.80}")
    known = signature(kind).parameters
    for name in told:
        if name not in known:
            raise UsageError(f"{called} has no {name!r:.80}; {meant(str(name), known)}")
    return kind(**told)


def tallied(tally: Sequence[float] | Vector, loss: float, window: int) -> tuple[float, float, float, float]:
    """A tally with one loss more. Until a window is full, its mean is that of all."""
    count, total, recent, longer = tally
    count += 1
    recent += (loss - recent) / min(count, window)
    longer += (loss - longer) / min(count, window * _LONGER)
    return count, total + loss, recent, longer


def together(shards: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What shards tell of one generation, as one: counts added up, means weighted by them."""
    told: dict[str, Any] = {name: sum(each[name] for each in shards) for name in ("users", "stale")}
    for name in ("errors", "pool"):
        tallies = np.array([each[name] for each in shards])
        counts = tallies[:, 0]
        means = counts @ tallies[:, 2:] / max(1.0, counts.sum())
        told[name] = [float(counts.sum()), float(tallies[:, 1].sum()), *map(float, means)]
    return told
