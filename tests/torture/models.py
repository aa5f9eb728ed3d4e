"""Small models whose states tell in which order they were made, for runs in which processes die.

What they answer depends on everything that came before, so a lost, repeated or reordered query shows in the outputs of
all that follow, and two histories of one stage are never taken for each other.
"""

import hashlib
import os
import time
from typing import Any

import numpy as np

from tests.torture.arming import take_order

USERS = 7
_BLOCK = 512  # numbers of the ballast that a query changes: 4 KiB


class Chain:
    """Shared: a hash chain over all queries, and `kib` KiB of numbers of which each query changes a block.

    `seconds`: how long a compute takes, so that batches overlap with what goes on beside them. `orders`: see `arming`.
    `fails`: it refuses each so-manieth query.
    """

    def __init__(self, kib: int = 16, seconds: float = 0.0, orders: str = "", fails: int = 0) -> None:
        take_order(orders)
        self._count = max(_BLOCK, kib * 128)
        self._seconds = seconds
        self._fails = fails

    def initialize(self) -> dict[str, Any]:
        return {"chain": np.zeros(16, np.uint8), "ballast": np.zeros(self._count), "queries": 0}

    def compute(self, state: Any, batch: Any) -> list[dict[str, Any]]:
        if self._seconds:
            time.sleep(self._seconds)  # stands for a device that computes
        if self._fails and any(query["x"] % self._fails == 0 for query in batch):
            raise ValueError("a number that this model does not take")
        chain, answers = state["chain"].tobytes(), []
        for at, query in enumerate(batch, 1):
            chain = _link(chain, query["x"])
            answers.append({"x": query["x"], "seen": state["queries"] + at, "chain": chain.hex()})
        return answers

    def update(self, state: Any, batch: Any, outputs: Any) -> dict[str, Any]:
        chain, ballast, queries = state["chain"].tobytes(), state["ballast"], state["queries"]
        for query in batch:
            chain = _link(chain, query["x"])
            start = queries * _BLOCK % (self._count - _BLOCK + 1)
            ballast[start : start + _BLOCK] += query["x"] + 0.5
            queries += 1
        return {"chain": np.frombuffer(chain, np.uint8).copy(), "ballast": ballast, "queries": queries}


class Dice(Chain):
    """Shared, with chance of its own: no replay gives again what it once gave."""

    def compute(self, state: Any, batch: Any) -> list[dict[str, Any]]:
        return [{**answer, "thrown": os.urandom(8).hex()} for answer in super().compute(state, batch)]

    def update(self, state: Any, batch: Any, outputs: Any) -> dict[str, Any]:
        after = super().update(state, batch, outputs)
        return {**after, "thrown": np.frombuffer(os.urandom(4_096), np.uint8).copy()}


class Users:
    """Keyed: a hash chain for each of `users` users, by the query's number."""

    def __init__(self, users: int = USERS, seconds: float = 0.0, orders: str = "") -> None:
        take_order(orders)
        self._users = users
        self._seconds = seconds

    def initialize(self) -> dict[str, Any]:
        return {"chain": np.zeros(16, np.uint8), "queries": 0}

    def key(self, query: Any) -> str:
        return f"user-{query['x'] % self._users}"

    def publish(self, state: Any) -> dict[str, Any]:
        return {"queries": state["queries"], "chain": state["chain"].tobytes()}

    def compute(self, states: Any, batch: Any) -> list[dict[str, Any]]:
        time.sleep(self._seconds)
        chains = {key: state["chain"].tobytes() for key, state in states.items()}
        answers = []
        for query in batch:
            key = self.key(query)
            chains[key] = _link(chains[key], query["x"])
            answers.append({"x": query["x"], "chain": chains[key].hex()})
        return answers

    def update(self, states: Any, batch: Any, outputs: Any) -> dict[str, Any]:
        after = {key: dict(state) for key, state in states.items()}
        for query in batch:
            state = after[self.key(query)]
            state["chain"] = np.frombuffer(_link(state["chain"].tobytes(), query["x"]), np.uint8).copy()
            state["queries"] += 1
        return after


class Through:
    """Stateless: the same for the same query, whenever it is asked."""

    def __init__(self, seconds: float = 0.0, orders: str = "") -> None:
        take_order(orders)
        self._seconds = seconds

    def predict(self, batch: Any) -> list[dict[str, Any]]:
        time.sleep(self._seconds)
        return [dict(query) for query in batch]


class Met:
    """Stateless, behind a join: whether both parts are of one query, and whole."""

    def predict(self, batch: Any) -> list[dict[str, Any]]:
        return [_met(query) for query in batch]


class MetAndCounted:
    """The same, shared: which of all queries each is."""

    def initialize(self) -> dict[str, Any]:
        return {"asked": 0}

    def compute(self, state: Any, batch: Any) -> list[dict[str, Any]]:
        return [{**_met(query), "of_all": state["asked"] + at} for at, query in enumerate(batch)]

    def update(self, state: Any, batch: Any, _outputs: Any) -> Any:
        return {"asked": state["asked"] + len(batch)}


def _met(query: Any) -> dict[str, Any]:
    if query["left.x"] != query["right.x"] or query["left.pad"] != query["right.pad"]:
        raise ValueError("parts of two queries")
    return {"x": query["left.x"], "size": len(query["left.pad"])}


def meet(parts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Join: another number for each set of parts that came, so that a state tells what it was made of."""
    (number,) = {part["x"] for part in parts.values()}
    return {"x": 4 * number + len(parts)}


def by_parity(outputs: dict[str, Any]) -> str:
    """Choose b for even numbers, c for odd ones."""
    return "c" if outputs["x"] % 2 else "b"


def _link(chain: bytes, number: int) -> bytes:
    return hashlib.blake2b(chain + b"%d" % number, digest_size=16).digest()
