"""Models for runs with a heavy load: they do next to nothing, and what they answer tells how often they were asked."""

from typing import Any

import numpy as np

KEYS = 97


class Branch:
    def predict(self, batch: Any) -> list[dict[str, Any]]:
        return [{"x": query["x"], "pad": query["pad"]} for query in batch]


class Front:
    def predict(self, batch: Any) -> list[dict[str, Any]]:
        return [{"x": query["x"]} for query in batch]


class Back:
    def predict(self, batch: Any) -> list[dict[str, Any]]:
        return [{name: query[name] for name in ("x", "of_key", "of_all")} for query in batch]


class Count:
    """Keyed: which of its key's queries each is."""

    def initialize(self) -> dict[str, Any]:
        return {"asked": np.zeros(1, np.int64)}

    def key(self, query: Any) -> str:
        return f"key-{query['x'] % KEYS}"

    def compute(self, states: Any, batch: Any) -> list[dict[str, Any]]:
        counts = {key: int(state["asked"][0]) for key, state in states.items()}
        answers = []
        for query in batch:
            key = self.key(query)
            answers.append({"x": query["x"], "of_key": counts[key]})
            counts[key] += 1
        return answers

    def update(self, states: Any, batch: Any, _outputs: Any) -> Any:
        for query in batch:
            states[self.key(query)]["asked"] += 1
        return states


class Total:
    def initialize(self) -> dict[str, Any]:
        return {"asked": np.zeros(1, np.int64)}

    def compute(self, state: Any, batch: Any) -> list[dict[str, Any]]:
        asked = int(state["asked"][0])
        return [{"x": query["x"], "of_all": asked + at, "of_key": query["of_key"]} for at, query in enumerate(batch)]

    def update(self, state: Any, batch: Any, _outputs: Any) -> Any:
        state["asked"] += len(batch)
        return state


class Meet:
    """Stateless, behind a join: whether both parts are of one query, and whole."""

    def predict(self, batch: Any) -> list[dict[str, Any]]:
        return [_met(query) for query in batch]


class MeetAndCount(Total):
    def compute(self, state: Any, batch: Any) -> list[dict[str, Any]]:
        asked = int(state["asked"][0])
        return [{**_met(query), "of_all": asked + at} for at, query in enumerate(batch)]


def _met(query: Any) -> dict[str, Any]:
    if query["left.x"] != query["right.x"] or query["left.pad"] != query["right.pad"]:
        raise ValueError("parts of two queries")
    return {"x": query["left.x"], "size": len(query["left.pad"])}
