"""Small stateful models whose answers tell the state that they were computed from."""

from __future__ import annotations

import random
from typing import Any

import numpy as np


class Count:
    """How often a key was asked, and by what; with `raise` in a query, compute raises."""

    version = "count1"

    def initialize(self) -> dict[str, Any]:
        return {"asked": np.zeros(1, np.int64), "sum": np.zeros(4)}

    def key(self, query: Any) -> str:
        return f"key {query['x'] % 7}"

    def compute(self, state: Any, batch: Any) -> list[dict[str, Any]]:
        if any("raise" in query for query in batch):
            raise ValueError("cannot stand this one")
        return [{"x": query["x"], "before": int(state[self.key(query)]["asked"][0])} for query in batch]

    def update(self, state: Any, batch: Any, _outputs: Any) -> Any:
        for query in batch:
            own = state[self.key(query)]
            own["asked"] += 1
            own["sum"][query["x"] % 4] += query["x"]
        return state


class Sum:
    """One state for all; also the order of the batches is in it."""

    def initialize(self) -> dict[str, Any]:
        return {"sum": np.zeros(1), "order": np.zeros(1)}

    def compute(self, state: Any, batch: Any) -> list[dict[str, Any]]:
        return [{"x": query["x"], "sum": float(state["sum"][0])} for query in batch]

    def update(self, state: Any, batch: Any, _outputs: Any) -> Any:
        for query in batch:
            state["sum"] += query["x"]
            state["order"] = state["order"] * 0.999 + query["x"]
        return state


class Dice(Sum):
    """Its answers differ from process to process."""

    def compute(self, state: Any, batch: Any) -> list[dict[str, Any]]:
        return [{**each, "thrown": random.random()} for each in super().compute(state, batch)]

    def update(self, state: Any, batch: Any, outputs: Any) -> Any:
        for query, output in zip(batch, outputs, strict=True):
            state["sum"] += query["x"] * output["thrown"]
        return state


class Pass:
    """A stateless one."""

    def predict(self, batch: Any) -> list[dict[str, Any]]:
        return [{"x": query["x"]} for query in batch]
