"""What the tests of learners serve: of each key how many observations there were, their sum, and their order.

And members of an ensemble.
"""

from zlib import crc32


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
