"""New features from what learners keep of observations, and whether they are better (thesis, section 2.4).

Held-out observations decide (`observed`): over the old features and over the new ones, the users' weights are fitted to
the others, and the held-out ones are predicted by them. The new features are better where the mean loss is less by the
share `gain` at least. What was judged is what is served: the features are not trained again with the held-out ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spillway.agents.learning.velox import observed
from spillway.agents.learning.velox.learning import HELD
from spillway.agents.learning.velox.model import Features, Seen
from spillway.agents.learning.velox.weights import fitted
from spillway.lineage.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway.agents.learning.velox.model import VeloxModel
    from spillway.agents.learning.velox.weights import Vector

_FEWEST = 10  # held-out observations, below which nothing is decided


class Judged(NamedTuple):
    """What held-out observations say of features: the mean loss; and the mean weights of the users over them."""

    error: float
    held: int
    prior: Vector


class Retrained(NamedTuple):
    """New parameters, and the judgements of the old features and the new ones."""

    parameters: Mapping[str, Any]
    old: Judged
    new: Judged

    def better(self, gain: float) -> bool:
        return self.new.held >= self.old.held and self.new.error < self.old.error * (1 - gain)


def retrain(old: Features, generation: str, users: Mapping[str, Mapping[str, Any]]) -> Retrained:
    """Train from the features of `generation` on, and judge; `users` are the states of the learner's users.

    Raises ModelError where there is too little to decide by, and what the class raises.
    """
    model = old.model
    held = sum(int(observed.held_out(state).sum()) for state in users.values())
    if held < _FEWEST:
        raise ModelError(f"{held} observations are held out so far, and {_FEWEST} are needed to judge features by")
    parameters = model.retrain(_seen(generation, users))
    new = Features(model.renewed({**parameters}))
    return Retrained(parameters, judged(model, old, users), judged(model, new, users))


def judged(model: VeloxModel, features: Features, users: Mapping[str, Mapping[str, Any]]) -> Judged:
    """How well features predict what is held out, from weights that the rest has made."""
    parted = [_parted(features, user, state) for user, state in users.items()]
    prior = np.zeros(model.dimension)
    for _ in range(2):  # from nothing, and then from the mean, as users do
        weights = [_fitted(model, each, prior) for each in parted]
        prior = np.mean(weights, axis=0)
    losses = [
        model.loss(value, float(w @ row), item, each.user)
        for w, each in zip(weights, parted, strict=True)
        for row, value, item in each.held
    ]
    return Judged(float(np.mean(losses)) if losses else float("inf"), len(losses), prior)


class _Parted(NamedTuple):
    user: str
    rows: list[Vector]
    values: list[float]
    held: list[tuple[Vector, float, Any]]


def _parted(features: Features, user: str, state: Mapping[str, Any]) -> _Parted:
    made = _Parted(user, [], [], [])
    for item, value, held in zip(observed.items_of(state), state["values"], observed.held_out(state), strict=True):
        try:
            row = features.of(item)
        except ModelError:
            continue
        if held:
            made.held.append((row, float(value), item))
        else:
            made.rows.append(row)
            made.values.append(float(value))
    return made


def _fitted(model: VeloxModel, each: _Parted, prior: Vector) -> Vector:
    rows = np.array(each.rows).reshape(len(each.rows), model.dimension)
    return fitted(rows, np.array(each.values), model.regularization, prior, model.error)[0]


def _seen(generation: str, users: Mapping[str, Mapping[str, Any]]) -> Seen:
    """The observations that are not held out."""
    seen = Seen([], [], np.zeros(0), {})
    values, weights = [], {}
    for user, state in users.items():
        train = ~observed.held_out(state)
        items = [item for item, in_it in zip(observed.items_of(state), train, strict=True) if in_it]
        seen.items.extend(items)
        seen.users.extend([user] * len(items))
        values.append(state["values"][train])
        if generation in state[HELD]:
            weights[user] = state[HELD][generation]["w"]
    return seen._replace(values=np.concatenate(values), weights=weights)
