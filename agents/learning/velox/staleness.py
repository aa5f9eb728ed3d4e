"""Whether features are stale: errors of predictions, each taken before its observation was learned.

Three errors are watched, as in the thesis' section 2.4, "Model Evaluation": over all users, over the observations on
items that were drawn at random (the pool), and each user's own. An error is too high where the mean of about the last
`window` is over `error`. It has risen where `risen` says so, by a test, and the mean by `rise` at least.

Nothing here knows a clock: what counts is observations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from spillway.agents.learning.velox.rises import risen
from spillway.lineage.errors import UsageError
from spillway.topology.names import meant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spillway.agents.learning.velox.weights import Vector

LEVEL: Final = 0.02  # how often features that are no better may be switched to
NONE: Final = (0.0, 0.0, 0.0, 0.0)  # a tally: count, sum, recent mean, mean of the first window
_OF_USER: Final = 10  # a user's window is that part of all users'
_LEAST: Final = 10
_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Stale:
    """What a learner's `arguments: {stale: ...}` say. Raises UsageError for what cannot be."""

    error: float | None = None  # the most that a recent mean may be; None: any
    rise: float | None = 1.1  # how many times what it was a mean may be, once it has risen for good; None: any
    users: float | None = None  # the share of users that may be over `error`; None: any
    window: int = 200  # observations of a recent mean, and of a block of which rises are found
    gain: float = 0.01  # by what share new features must be better on held-out observations
    level: float = LEVEL  # and how likely it may be at most that they are by chance

    def __post_init__(self) -> None:
        limits = [each for each in (self.error, self.rise, self.users) if each is not None]
        if any(each <= 0 for each in limits) or type(self.window) is not int or self.window < _LEAST:
            raise UsageError(f"stale: 'error', 'rise' and 'users' must be above 0, and 'window' {_LEAST} or more")
        if self.users is not None and self.error is None:
            raise UsageError("stale: 'users' is the share of users over 'error': set that, too")
        if not (0 <= self.gain < 1 and 0 < self.level < 1):
            raise UsageError("stale: 'gain' must be at least 0 and below 1, and 'level' between 0 and 1")

    @property
    def users_window(self) -> int:
        return max(_LEAST, self.window // _OF_USER)

    def over(self, tally: Sequence[float] | Vector, window: int) -> str:
        """Why an error is too high; '' where it is not, or where nobody can tell yet."""
        count, _, recent, _ = tally
        if self.error is None or count < 2 * window or recent <= self.error:
            return ""
        return f"{recent:.4g} over the last {window}, more than {self.error:g}"

    def why(self, told: Mapping[str, Any]) -> str:
        """Why features are stale, of what the shards tell of them (`together`); '' where they are not."""
        for name, what in (("errors", "the error is"), ("pool", "the error on random items is")):
            if found := self.over(told[name], self.window):
                return f"{what} {found}"
            rise = None if self.rise is None else risen(told[f"{name}_since"], self.window)
            if rise is not None and self.rise is not None and rise.times >= self.rise:
                return f"{what} {rise.times:.3g} times what it was until {rise.since:,} observations ago, by a test"
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
    count, total, recent, first = tally
    count += 1
    recent += (loss - recent) / min(count, window)
    return count, total + loss, recent, recent if count <= window else first


def together(shards: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What shards tell of one generation, as one: counts added up, means weighted by them."""
    told: dict[str, Any] = {name: sum(each[name] for each in shards) for name in ("users", "stale")}
    for name in ("errors", "pool"):
        tallies = np.array([each[name] for each in shards])
        counts = tallies[:, 0]
        means = counts @ tallies[:, 2:] / max(1.0, counts.sum())
        told[name] = [float(counts.sum()), float(tallies[:, 1].sum()), *map(float, means)]
        told[f"{name}_since"] = [each[f"{name}_since"] for each in shards]
    return told
