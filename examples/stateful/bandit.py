"""A contextual bandit (LinUCB): which of ARMS offers to show, by what is known of the visitor.

A query with a `context` asks, and is answered with the arm whose reward may be the highest; one that tells the
`reward` of an `arm` shown earlier teaches. One state for all visitors: what one clicks on is of use for the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

ARMS, CONTEXT = 6, 8
BOLDNESS = 0.6  # how much an arm's uncertainty counts in its favour
Batch = Sequence[Mapping[str, Any]]
State = Mapping[str, Any]


def visitor(rng: np.random.Generator) -> NDArray[np.float64]:
    """Who comes: a unit vector."""
    made = rng.normal(size=CONTEXT)
    return made / np.linalg.norm(made)


def offers(seed: int = 3) -> NDArray[np.float64]:
    """What the arms are worth to whom, which the bandit is not told: (ARMS, CONTEXT)."""
    return np.random.default_rng(seed).normal(size=(ARMS, CONTEXT))


def blank() -> dict[str, Any]:
    return {"spread": np.stack([np.eye(CONTEXT)] * ARMS), "sums": np.zeros((ARMS, CONTEXT)), "shown": np.zeros(ARMS)}


def choose(state: State, context: NDArray[np.float64]) -> int:
    """The arm with the highest upper confidence bound."""
    wide = state["spread"] @ context
    means = (wide * state["sums"]).sum(1)
    return int(np.argmax(means + BOLDNESS * np.sqrt(wide @ context)))


def learn(state: State, context: NDArray[np.float64], arm: int, reward: float) -> None:
    """Take a reward in, in place: the inverse of the arm's design matrix by Sherman and Morrison."""
    wide = state["spread"][arm] @ context
    state["spread"][arm] -= np.outer(wide, wide) / (1 + wide @ context)
    state["sums"][arm] += reward * context
    state["shown"][arm] += 1


class Bandit:
    initialize = staticmethod(blank)

    def reads(self, query: Mapping[str, Any]) -> bool:
        return "reward" not in query

    def compute(self, state: State, batch: Batch) -> list[dict[str, Any]]:
        return [{"arm": query["arm"] if "arm" in query else choose(state, query["context"])} for query in batch]

    def update(self, state: State, batch: Batch, _outputs: Batch) -> State:
        for query in batch:
            learn(state, query["context"], query["arm"], query["reward"])
        return state
