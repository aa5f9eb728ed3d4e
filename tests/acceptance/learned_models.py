"""What the tests of learners serve: of each key how many observations there were, their sum, and their order.

And members of an ensemble.
"""

from zlib import crc32

import numpy as np

from spillway.agents.models.stateful import SHARED


class Taste:
    """Keeps what tells whether each observation was learned once, and in order."""

    def initialize(self):
        return {"n": 0, "sum": 0, "order": 0}

    def key(self, query):
        return query.key

    def compute(self, states, batch):
        return [{"n": states[query.key]["n"]} for query in batch]

    def update(self, states, batch, outputs):
        for query in batch:
            states[query.key] = learned(states[query.key], query.request_id, query["truth"])
        return states

    def publish(self, state):
        return state


class Sharing(Taste):
    """Its keys share how many observations there were, and each knows how many there were before it."""

    max_keys = 2

    def share(self):
        return {"seen": 0}

    def initialize(self, shared):
        return {**super().initialize(), "before": shared["seen"]}

    def update(self, states, batch, outputs):
        for query in batch:
            state = states[query.key]
            states[query.key] = {**state, **learned(state, query.request_id, query["truth"])}
            states[SHARED] = {"seen": states[SHARED]["seen"] + 1}
        return states


def learned(state, request_id, truth):
    order = crc32(request_id.encode(), state["order"])
    return {"n": state["n"] + 1, "sum": state["sum"] + truth, "order": order}


class Rank:
    """Answers with what it was given of the table."""

    def predict(self, batch):
        return [{"user": query["user"], "version": query["user.version"]} for query in batch]


class Says:
    """Answers what it is asked, but for `off`."""

    def __init__(self, off):
        self.off = off

    def predict(self, batch):
        return [{"label": query["x"] + self.off} for query in batch]


class Scores(Says):
    """Scores of three classes, of which that of what it is asked, but for `off`, is the highest."""

    def predict(self, batch):
        return [{"label": 0.1 + 0.7 * np.eye(3)[(query["x"] + self.off) % 3]} for query in batch]
