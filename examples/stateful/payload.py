"""Requests for each service, made from a seed: `NAME(index)` is the query with that index, and always the same.

`batches(NAME, count, size)` cuts them into batches, for trying a model in one process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from examples.stateful import bandit, recommend

if TYPE_CHECKING:
    from collections.abc import Callable

USERS = 8
Query = dict[str, Any]


def visit(index: int, _rng: Any = None) -> Query:
    """The recommender: a rating, or, every eighth time, a question."""
    made = recommend.visits(recommend.tastes(USERS, 9), 1, 6_000_000 + index)[0]
    return {"user": made["user"]} if index % 8 == 7 else made


def offer(index: int, _rng: Any = None) -> Query:
    """The bandit: who comes, or, every other time, the reward of an arm at random (nobody reads the answers here)."""
    rng = np.random.default_rng(7_000_000 + index)
    context = bandit.visitor(rng)
    if index % 2 == 0:
        return {"context": context}
    arm = int(rng.integers(bandit.ARMS))
    return {"context": context, "arm": arm, "reward": float(bandit.offers()[arm] @ context + rng.normal(0, 0.1))}


def batches(make: Callable[[int], Query], count: int, size: int, start: int = 0) -> list[list[Query]]:
    """The first `count * size` queries from `start` on, in batches."""
    return [[make(start + turn * size + row) for row in range(size)] for turn in range(count)]
