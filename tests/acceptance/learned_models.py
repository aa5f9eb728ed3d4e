"""What the tests of learners serve: each key's count and sum of what was learned of it, and members of an ensemble."""


class Taste:
    """Keeps the ids of its observations, in order: each is to be there once."""

    def initialize(self):
        return {"ids": (), "sum": 0}

    def key(self, query):
        return query.key

    def compute(self, states, batch):
        return [{"n": len(states[query.key]["ids"])} for query in batch]

    def update(self, states, batch, outputs):
        for query in batch:
            state = states[query.key]
            states[query.key] = {"ids": (*state["ids"], query.request_id), "sum": state["sum"] + query["truth"]}
        return states

    def publish(self, state):
        return {"ids": list(state["ids"]), "sum": state["sum"]}


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
