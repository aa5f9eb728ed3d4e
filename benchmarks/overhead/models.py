"""Models that do nothing, so that all that a pipeline takes is its own; copied beside the benchmark's pipelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Batch = Sequence[Mapping[str, Any]]
_KEYS = 16


class Pass:
    """Gives the query's index on."""

    def predict(self, batch: Batch) -> list[dict[str, Any]]:
        return [{"index": query["index"]} for query in batch]


class Count:
    """Counts the queries of each of a few keys."""

    def initialize(self) -> dict[str, Any]:
        return {"seen": 0}

    def key(self, query: Mapping[str, Any]) -> str:
        return str(query["index"] % _KEYS)

    def compute(self, _state: Any, batch: Batch) -> list[dict[str, Any]]:
        return [{"index": query["index"]} for query in batch]

    def update(self, state: Any, batch: Batch, _outputs: Any) -> Any:
        for query in batch:
            state[self.key(query)]["seen"] += 1
        return state


class Meet:
    """Takes the two parts of a query."""

    def predict(self, batch: Batch) -> list[dict[str, Any]]:
        return [{"index": query["left.index"]} for query in batch]
