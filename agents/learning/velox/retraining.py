"""New features from what learners keep of observations, and whether they are better (thesis, section 2.4).

Held-out observations decide (`observed`): over the old features and over the new ones, the users' prior is estimated
from the others (`prior`) and their weights are fitted to them, and the held-out ones are predicted by these. The new
features are better where the mean loss is less by the share `gain` at least. What was judged is what is served: the
features are not trained again with the held-out ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spillway.agents.learning.velox import observed
from spillway.agents.learning.velox.learning import HELD
from spillway.agents.learning.velox.model import Features, Seen
from spillway.agents.learning.velox.prior import estimated
from spillway.agents.learning.velox.weights import fitted
from spillway.lineage.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway.agents.learning.velox.model import VeloxModel
    from spillway.agents.learning.velox.prior import Prior
    from spillway.agents.learning.velox.weights import Matrix, Vector

_FEWEST = 10  # held-out observations, below which nothing is decided


class Judged(NamedTuple):
    """What held-out observations say of features: the mean loss; and the prior of the users' weights over them."""

    error: float
    held: int
    prior: Prior


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
    rows, values = [each.rows for each in parted], [each.values for each in parted]
    prior = estimated(rows, values, model.regularization)
    weights = [fitted(*each, prior.precision, prior.mean, model.error)[0] for each in zip(rows, values, strict=True)]
    losses = [
        model.loss(value, float(w @ row), item, each.user)
        for w, each in zip(weights, parted, strict=True)
        for row, value, item in each.held
    ]
    return Judged(float(np.mean(losses)) if losses else float("inf"), len(losses), prior)


class _Parted(NamedTuple):
    user: str
    rows: Matrix
    values: Vector
    held: list[tuple[Vector, float, Any]]


def _parted(features: Features, user: str, state: Mapping[str, Any]) -> _Parted:
    rows, values, kept = [], [], []
    for item, value, held in zip(observed.items_of(state), state["values"], observed.held_out(state), strict=True):
        try:
            row = features.of(item)
        except ModelError:
            continue
        if held:
            kept.append((row, float(value), item))
        else:
            rows.append(row)
            values.append(float(value))
    return _Parted(user, np.array(rows).reshape(len(rows), features.model.dimension), np.array(values), kept)


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
