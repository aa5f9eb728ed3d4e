"""A recommender that learns what each user likes: a Bayesian linear regression of ratings on the items' features.

A query with an `item` and a `rating` teaches; one with only a `user` asks for the best items not yet rated. The state
of a user is a vector, a matrix and the items seen; users share nothing but the catalogue, which never changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spillway.agents.models.per_key import PerKey

ITEMS, FEATURES, TOP = 200, 8, 5
NOISE = 0.3  # of a rating
State = Mapping[str, Any]
Vectors = NDArray[np.float64]


def catalogue(seed: int = 5) -> Vectors:
    """The items' features: (ITEMS, FEATURES)."""
    return np.random.default_rng(seed).normal(size=(ITEMS, FEATURES)) / FEATURES**0.5


def tastes(users: int, seed: int) -> Vectors:
    """What users like, which the model is not told: (users, FEATURES)."""
    return np.random.default_rng(seed).normal(size=(users, FEATURES))


def visits(liked: Vectors, count: int, seed: int) -> list[dict[str, Any]]:
    """Ratings of random items by random users."""
    rng = np.random.default_rng(seed)
    items = catalogue()
    made = []
    for _ in range(count):
        user, item = int(rng.integers(len(liked))), int(rng.integers(ITEMS))
        rating = float(liked[user] @ items[item] + rng.normal(0, NOISE))
        made.append({"user": f"u{user}", "item": item, "rating": rating})
    return made


def stranger() -> dict[str, Any]:
    return {"taste": np.zeros(FEATURES), "spread": np.eye(FEATURES), "rated": np.zeros(ITEMS, np.bool_)}


class Taste:
    """Learns from a rating, or recommends."""

    def __init__(self) -> None:
        self.items = catalogue()

    def serve(self, state: State, query: Mapping[str, Any]) -> tuple[dict[str, Any], State]:
        if "rating" not in query:
            scores = np.where(state["rated"], -np.inf, self.items @ state["taste"])
            return {"user": query["user"], "items": np.argsort(-scores, kind="stable")[:TOP].tolist()}, state
        item = self.items[query["item"]]
        wide = state["spread"] @ item
        gain = wide / (NOISE**2 + item @ wide)
        error = float(query["rating"] - state["taste"] @ item)
        rated = state["rated"].copy()
        rated[query["item"]] = True
        spread = state["spread"] - np.outer(gain, wide)
        return {"user": query["user"], "error": error}, {
            "taste": state["taste"] + gain * error,
            "spread": spread,
            "rated": rated,
        }


def recommend() -> PerKey:
    return PerKey(stranger, Taste().serve, key=lambda query: query["user"], reads=lambda query: "rating" not in query)
