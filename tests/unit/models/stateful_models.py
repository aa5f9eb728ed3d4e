"""Stateful models for the tests: right ones, and ones that break one rule each."""

import numpy as np


class Total:
    """Shared: adds up x, in place, and answers with the total before."""

    def initialize(self):
        return {"total": np.zeros(2), "batches": 0}

    def reads(self, query):
        return "x" not in query

    def compute(self, state, batch):
        return [{"before": float(state["total"].sum()), "x": query.get("x", 0.0)} for query in batch]

    def update(self, state, batch, outputs):
        for output in outputs:
            state["total"] += output["x"]
        return {**state, "batches": state["batches"] + 1}


class Sums:
    def initialize(self):
        return {"sum": np.zeros(1)}

    def key(self, query):
        return query["user"]

    def reads(self, query):
        return "x" not in query

    def compute(self, states, batch):
        return [{"sum": float(states[query["user"]]["sum"][0])} for query in batch]

    def update(self, states, batch, outputs):
        new = {key: {"sum": state["sum"].copy()} for key, state in states.items()}
        for query in batch:
            new[query["user"]]["sum"] += query["x"]
        return new


class Eager(Total):
    """Changes its state in compute."""

    def compute(self, state, batch):
        state["total"] += 1
        return super().compute(state, batch)


class EagerSums(Sums):
    """Changes a key's state in compute."""

    def compute(self, states, batch):
        states[batch[0]["user"]]["sum"] += 1
        return super().compute(states, batch)


class Grasping(Sums):
    """Remembers the states that it has seen, and changes one of another batch."""

    def __init__(self):
        self.seen = {}

    def compute(self, states, batch):
        self.seen.update(states)
        return super().compute(states, batch)

    def update(self, states, batch, outputs):
        new = super().update(states, batch, outputs)
        for key, state in self.seen.items():
            if key not in states:
                state["sum"] += 1
        self.seen.update(new)
        return new


class Secretive(Total):
    """Keeps a part of what it remembers to itself."""

    def __init__(self):
        self.count = 0

    def update(self, state, batch, outputs):
        self.count += 1
        state["total"] += self.count
        return state


class Unseeded(Total):
    """Begins otherwise each time."""

    def initialize(self):
        return {"total": np.random.default_rng().normal(size=2), "batches": 0}


class Dicing(Total):
    """Updates with numbers of chance."""

    def update(self, state, batch, outputs):
        return {**state, "total": np.random.default_rng().normal(size=2)}


class NoUpdate:
    def initialize(self):
        return {}

    def compute(self, state, batch):
        return [{} for _ in batch]


class ShortUpdate(Total):
    def update(self, state, batch):
        return state


class AsyncCompute(Total):
    async def compute(self, state, batch):
        return []


class KeyAttribute(Total):
    key = "user"


class Pooled:
    """A key begins with the mean of all values so far, which all keys share; it keeps two keys."""

    max_keys = 2

    def share(self):
        return {"sum": 0.0, "n": 0}

    def initialize(self, shared):
        return {"value": shared["sum"] / max(1, shared["n"]), "n": 0}

    def key(self, query):
        return query["user"]

    def compute(self, states, batch):
        return [{"value": states[query["user"]]["value"]} for query in batch]

    def update(self, states, batch, outputs):
        made = dict(states)
        for query in batch:
            user, shared = query["user"], made["*shared*"]
            made["*shared*"] = {"sum": shared["sum"] + query["x"], "n": shared["n"] + 1}
            made[user] = {"value": query["x"], "n": made[user]["n"] + 1}
        return made

    def publish(self, state):
        return state["value"]


class Unpooled(Pooled):
    def initialize(self):
        return {}
