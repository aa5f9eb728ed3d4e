"""The models of `python -m benchmarks live-pairs`: a millisecond each, so that the hops between stages dominate."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

SECONDS = 0.001
Batch = Sequence[Mapping[str, Any]]


class Brief:
    """Gives the query's index on."""

    def predict(self, batch: Batch) -> list[dict[str, Any]]:
        time.sleep(SECONDS)
        return [{"index": query["index"]} for query in batch]


class Counting:
    """Counts the queries of each key."""

    def initialize(self) -> dict[str, Any]:
        return {"seen": np.zeros(1, np.int64)}

    def key(self, query: Mapping[str, Any]) -> str:
        return f"key {query['index'] % 16}"

    def compute(self, state: Any, batch: Batch) -> list[dict[str, Any]]:
        time.sleep(SECONDS)
        return [{"index": query["index"], "seen": int(state[self.key(query)]["seen"][0])} for query in batch]

    def update(self, state: Any, batch: Batch, _outputs: Any) -> Any:
        for query in batch:
            state[self.key(query)]["seen"] += 1
        return state


class Meeting:
    """Takes the two parts of a query."""

    def predict(self, batch: Batch) -> list[dict[str, Any]]:
        time.sleep(SECONDS)
        return [{"index": query["left.index"]} for query in batch]
