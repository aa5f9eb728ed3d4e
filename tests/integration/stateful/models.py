"""Small stateful models whose answers tell the state that they were computed from."""

import random
from typing import Any

import numpy as np

from spillway import Flagged


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
        befores = [int(state[self.key(query)]["asked"][0]) for query in batch]
        return [
            Flagged({"x": query["x"], "before": before}, said=before)
            for query, before in zip(batch, befores, strict=True)
        ]

    def update(self, state: Any, batch: Any, outputs: Any) -> Any:
        for query, output in zip(batch, outputs, strict=True):
            own = state[self.key(query)]
            own["sum"] += output.flags["said"] - output["before"]
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


class Marking(Sum):
    """Its answers differ from process to process, and tell the stage behind it what a query says of itself."""

    def compute(self, state: Any, batch: Any) -> list[dict[str, Any]]:
        told = super().compute(state, batch)
        return [
            {**each, "thrown": random.random(), **({"poison": 1} if "poison" in query else {})}
            for each, query in zip(told, batch, strict=True)
        ]

    def update(self, state: Any, batch: Any, outputs: Any) -> Any:
        for query, output in zip(batch, outputs, strict=True):
            state["sum"] += query["x"] * output["thrown"]
        return state


class Poisoned(Sum):
    """Its update raises half way for what says so; with `pair`, for two of those in a batch."""

    def update(self, state: Any, batch: Any, outputs: Any) -> Any:
        state["sum"] += 1e6
        if any("poison" in query for query in batch) or sum("pair" in query for query in batch) > 1:
            raise RuntimeError("half way")
        state["sum"] -= 1e6
        if any("unkept" in query for query in batch):
            return {**state, "order": object()}
        return super().update(state, batch, outputs)


class PoisonedCount(Count):
    def update(self, state: Any, batch: Any, outputs: Any) -> Any:
        for query in batch:
            state[self.key(query)]["asked"] += 1000
        if any("poison" in query for query in batch):
            raise RuntimeError("half way")
        for query in batch:
            state[self.key(query)]["asked"] -= 1000
        return super().update(state, batch, outputs)


class Pass:
    def predict(self, batch: Any) -> list[dict[str, Any]]:
        return [{"x": query["x"]} for query in batch]


class Joined:
    """Adds what two branches say; counts how often it did."""

    def initialize(self) -> dict[str, Any]:
        return {"count": np.zeros(1)}

    def compute(self, _state: Any, batch: Any) -> list[dict[str, Any]]:
        return [{"sum": query["left.x"] + query["right.x"]} for query in batch]

    def update(self, state: Any, batch: Any, _outputs: Any) -> Any:
        state["count"] += len(batch)
        return state
