"""New features from what learners keep of observations, and whether they are better (thesis, section 2.4).

Of every five observations each is held out in turn (`observed`): features are trained from the others, and over them
and over the old ones the users' prior is estimated (`prior`) and their weights are fitted; both predict what is held
out. The features that are served are those of the last turn, so no training saw what judges them. What the old features
were trained from does not count.

A mean loss that is less may be chance. The losses of one user hang together, so the users' differences are tested: a
paired t test, one-sided, at a stated level. Where it finds the new features neither better nor, at the same level,
short of the gain that is asked for, the data do not suffice.

Where what is observed has changed, users' weights are of before, whatever the features, and a switch makes them anew.
So features that are not worse than the old by more than the gain are switched to as well where users' errors of late,
as they were served, are above what the new features have on what is held out, by the same test. Its level is .05, as
little is lost where it errs.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spillway.agents.learning.velox import observed
from spillway.agents.learning.velox.learning import FIRST, HELD
from spillway.agents.learning.velox.model import Features, Seen
from spillway.agents.learning.velox.prior import estimated
from spillway.agents.learning.velox.staleness import LEVEL, NONE
from spillway.agents.learning.velox.weights import fitted
from spillway.lineage.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from spillway.agents.learning.velox.model import VeloxModel
    from spillway.agents.learning.velox.prior import Prior
    from spillway.agents.learning.velox.weights import Matrix, Vector

LATE = 0.05
_FEWEST = 10  # held-out observations, below which nothing is decided
_Losses = list["Vector"]  # of each user's observations; NaN where there is none


class Retrained(NamedTuple):
    """New parameters with their prior, and the mean losses of the old and the new features, user by user.

    `off` has the users' sums of differences, old less new, and `counts` of how many observations. `late` has, for each
    user with enough errors, their mean of late as served, less that of the new features.
    """

    parameters: Mapping[str, Any]
    prior: Prior
    old: float
    new: float
    off: Vector
    counts: Vector
    late: Vector
    lost: int  # observations that the old features can predict, and the new ones cannot

    @property
    def held(self) -> int:
        return int(self.counts.sum())

    def chance(self, gain: float = 0.0) -> float:
        """How likely so much less loss is by chance, where the share that is less is `gain`."""
        return _by_chance(self.off - gain * self.old * self.counts, self.counts)

    def late_by_chance(self) -> float:
        """How likely what is served is so much worse of late by chance."""
        return _by_chance(self.late, np.ones(len(self.late)))

    def better(self, gain: float, level: float = LEVEL) -> bool:
        if self.lost:
            return False
        by_far = self.new < self.old * (1 - gain) and self.chance() <= level
        return by_far or (self.new <= self.old * (1 + gain) and self.late_by_chance() <= LATE)

    def why(self, gain: float, level: float = LEVEL) -> str:
        """Why the new features are not switched to."""
        if self.lost:
            return f"{self.lost} held-out observations are of items that the new features lack"
        found = f"{self.held} held-out observations of {len(self.counts)} users"
        if self.chance(gain) >= 1 - level:
            return f"{found} show that they are not better by {gain:.1%}"
        if self.chance() <= level:
            return f"{found} show {1 - self.new / self.old:.1%} less loss, and {gain:.1%} are asked for"
        chances = f"p = {self.chance():.2g}, beside what was served of late {self.late_by_chance():.2g}"
        return f"{found} do not suffice to tell: {chances}, and {level:g} or {LATE:g} is asked for; it waits for more"


def _by_chance(sums: Vector, counts: Vector) -> float:
    """The probability of users' sums so large, of so many differences that are none: nearly Student's t, one-sided."""
    freedom = len(sums) - 1
    off = sums - sums.sum() / counts.sum() * counts if freedom > 0 else sums
    error = math.sqrt(len(sums) * float(np.square(off).sum()))
    if freedom < 1 or error == 0:
        return 1.0
    t = float(sums.sum()) * math.sqrt(freedom) / error
    return 1 - NormalDist().cdf(t * (1 - 1 / (4 * freedom)) / math.sqrt(1 + t * t / (2 * freedom)))


def retrain(old: Features, generation: str, users: Mapping[str, Mapping[str, Any]]) -> Retrained:
    """Train from the features of `generation` on, and judge; `users` are the states of the learner's users.

    Raises ModelError where there is too little to decide by, and what the class raises.
    """
    model = old.model
    held = sum(int(observed.held_out(state).sum()) for state in users.values())
    if held < _FEWEST:
        raise ModelError(f"{held} observations are held out so far, and {_FEWEST} are needed to judge features by")
    found: tuple[list[_Losses], list[_Losses]] = ([], [])
    for turn in range(observed.HELD_EVERY):
        out = [_held_out(state, generation, turn) for state in users.values()]
        parameters = model.retrain(_seen(generation, users, turn))
        new = Features(model.renewed({**parameters}))
        for features, losses in zip((old, new), found, strict=True):
            prior, judged = _judged(model, features, users, out)
            losses.append(judged)
    before, after = ([np.concatenate(each) for each in zip(*losses, strict=True)] for losses in found)  # of all turns
    return _compared(parameters, prior, before, after, _late(generation, users.values(), after))


def _late(generation: str, users: Iterable[Mapping[str, Any]], after: _Losses) -> Vector:
    """Of each user with enough of both: the mean loss of late over `generation`, as served, less that of `after`."""
    late = []
    for state, losses in zip(users, after, strict=True):
        count, _, recent, _ = state[HELD][generation]["errors"][0] if generation in state[HELD] else NONE
        if count >= _FEWEST and np.isfinite(losses).any():
            late.append(recent - float(np.nanmean(losses)))
    return np.array(late)


def _compared(parameters: Mapping[str, Any], prior: Prior, before: _Losses, after: _Losses, late: Vector) -> Retrained:
    both = [np.isfinite(one) & np.isfinite(other) for one, other in zip(before, after, strict=True)]
    counts = np.array([each.sum() for each in both], np.float64)
    old, new = (np.array([each[of].sum() for each, of in zip(losses, both, strict=True)]) for losses in (before, after))
    lost = sum(int((np.isfinite(one) & np.isnan(other)).sum()) for one, other in zip(before, after, strict=True))
    judged, total = counts > 0, max(1.0, counts.sum())
    means = float(old.sum() / total), float(new.sum() / total)
    return Retrained(parameters, prior, *means, (old - new)[judged], counts[judged], late, lost)


def _judged(
    model: VeloxModel, features: Features, users: Mapping[str, Mapping[str, Any]], out: Sequence[Any]
) -> tuple[Prior, _Losses]:
    """The users' prior over features, and how well these predict what is `out`, from weights that the rest has made."""
    parted = [_parted(features, state, held) for state, held in zip(users.values(), out, strict=True)]
    rows, values = [each.rows for each in parted], [each.values for each in parted]
    prior = estimated(rows, values, model.regularization)
    losses = []
    for user, each in zip(users, parted, strict=True):
        weights = fitted(each.rows, each.values, prior.precision, prior.mean, model.error)[0]
        told = (
            np.nan if row is None else model.loss(value, float(weights @ row), item, user)
            for row, value, item in each.held
        )
        losses.append(np.array([*told], np.float64))
    return prior, losses


class _Parted(NamedTuple):
    rows: Matrix
    values: Vector
    held: list[tuple[Vector | None, float, Any]]  # without features: of no item of theirs


def _parted(features: Features, state: Mapping[str, Any], out: tuple[Vector, Vector]) -> _Parted:
    rows, values, kept = [], [], []
    items = observed.items_of(state)
    for row, item, value, held, counts in zip(features.known(items), items, state["values"], *out, strict=True):
        if held and counts:
            kept.append((row, float(value), item))
        elif not held and row is not None:
            rows.append(row)
            values.append(float(value))
    return _Parted(np.array(rows).reshape(len(rows), features.model.dimension), np.array(values), kept)


def _held_out(state: Mapping[str, Any], generation: str, turn: int) -> tuple[Any, Any]:
    """Which observations are held out in a turn, and which the features of `generation` were not trained from.

    The class's own were trained from none; a retraining takes none of the last turn, and knows none that came later.
    """
    out, numbers = observed.held_out(state, turn), observed.numbers(state)
    known = state[HELD].get(generation)
    since = state["n"] if generation == FIRST else 0 if known is None else known["errors"][0][0]
    return out, (numbers >= state["n"] - since) | observed.held_out(state)


def _seen(generation: str, users: Mapping[str, Mapping[str, Any]], turn: int) -> Seen:
    """The observations that are not held out in a turn."""
    seen = Seen([], [], np.zeros(0), {})
    values, weights = [], {}
    for user, state in users.items():
        train = ~observed.held_out(state, turn)
        items = [item for item, in_it in zip(observed.items_of(state), train, strict=True) if in_it]
        seen.items.extend(items)
        seen.users.extend([user] * len(items))
        values.append(state["values"][train])
        if generation in state[HELD]:
            weights[user] = state[HELD][generation]["w"]
    return seen._replace(values=np.concatenate(values), weights=weights)
