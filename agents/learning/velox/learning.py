"""The learner's part of a Velox model: a keyed state of each user's weights, changed by each observation.

A user's state has the weights `w`, the `inverse` and the `prior` that they began from, which is the mean of all the
shard's users' weights at that time (section 2.5, "Bootstrapping"). `error` is the running one: how many observations
there were and the sum of their losses, each taken before the weights knew it; `pool` is the same of the observations on
items that were shown at random, which the model had no part in choosing (section 2.4, "Model Evaluation").
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from agents.learning.velox.weights import ERRORS, learn
from agents.models.stateful import SHARED
from lineage.errors import ModelError

if TYPE_CHECKING:
    from agents.learning.velox.model import Features, Item, VeloxModel
    from agents.models.inputs import Inputs

State = Mapping[str, Any]


class Observation(NamedTuple):
    """What a user said of an item, and whether that item was shown at random."""

    item: Item
    value: float
    drawn: bool


def observation(query: Mapping[str, Any]) -> Observation:
    """The observation in a feedback: its truth is `{"item": .., "value": ..}`, or the value of the item predicted.

    Raises ModelError for what is none.
    """
    truth, outputs = query.get("truth"), query.get("outputs") or {}
    told = truth if isinstance(truth, Mapping) else {"item": outputs.get("item"), "value": truth}
    item, value = told.get("item"), told.get("value")
    if item is None or isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ModelError(f'the truth of an observation is {{"item": .., "value": a number}}, not {truth!r:.80}')
    shown: Sequence[Any] = outputs.get("items") or ()
    flags = (query.get("flags") or {}).values()
    slots = [slot for said in flags if isinstance(said, Mapping) for slot, _ in said.get("random", ())]
    return Observation(item, float(value), any(slot < len(shown) and shown[slot] == item for slot in slots))


class Learning:
    """A keyed model, as `agents.models.stateful` has it."""

    fixed_state = True

    def __init__(self, model: VeloxModel, features: Features) -> None:
        self._model, self._features = model, features
        self._weight = ERRORS[model.error]

    def share(self) -> State:
        return {"sum": np.zeros(self._model.dimension), "users": 0}

    def initialize(self, shared: State) -> State:
        prior = shared["sum"] / max(1, shared["users"])
        return {
            "w": prior.copy(),
            "inverse": np.eye(self._model.dimension) / self._model.regularization,
            "prior": prior,
            "error": (0, 0.0),
            "pool": (0, 0.0),
            "theta": self._features.theta,
        }

    def key(self, query: Inputs) -> str:
        return query.key

    def compute(self, states: Mapping[str, State], batch: Sequence[Inputs]) -> list[dict[str, Any]]:
        """Say what the weights before the batch predict. Raises ModelError for what cannot be learned."""
        answers = []
        for query in batch:
            check_theta(states[query.key]["theta"], self._features.theta)
            observed = observation(query)
            predicted = float(states[query.key]["w"] @ self._features.of(observed.item))
            loss = float(self._model.loss(observed.value, predicted, observed.item, query.key))
            answers.append({"predicted": predicted, "loss": loss})
        return answers

    def update(self, states: dict[str, Any], batch: Sequence[Inputs], _outputs: Sequence[Any]) -> Mapping[str, State]:
        shared = dict(states[SHARED])
        for query in batch:
            state = states[query.key]
            item, value, drawn = observation(query)
            features = self._features.of(item)
            predicted = float(state["w"] @ features)
            loss = float(self._model.loss(value, predicted, item, query.key))
            new = state["error"][0] == 0
            if not new:
                shared["sum"] -= state["w"]
            learn(state["w"], state["inverse"], features, value - predicted, self._weight(value - predicted))
            shared["sum"] += state["w"]
            shared["users"] += new
            tallies = {"error": _added(state["error"], loss)}
            if drawn:
                tallies["pool"] = _added(state["pool"], loss)
            states[query.key] = {**state, **tallies}
        return {**states, SHARED: shared}

    def publish(self, state: State) -> dict[str, Any]:
        """What the stage ranks by: the inverse in single precision, as it only orders."""
        told = {"w": state["w"], "theta": state["theta"], "n": state["error"][0]}
        for name in ("error", "pool"):
            count, total = state[name]
            told[name] = total / count if count else None
        if (
            self._model.publish_inverse and told["n"]
        ):  # else it is I / lambda; the shared row goes out with each version
            told["inverse"] = state["inverse"].astype(np.float32)
        return told


def check_theta(learned: str, has: str) -> None:
    """Raise ModelError where weights belong to other features than there are."""
    if learned != has:
        raise ModelError(
            f"these weights were learned over the features {learned!r}, and the model has {has!r}: give stage and "
            "learner the same, and for new features a new learner"
        )


def _added(tally: tuple[int, float], loss: float) -> tuple[int, float]:
    return tally[0] + 1, tally[1] + loss
