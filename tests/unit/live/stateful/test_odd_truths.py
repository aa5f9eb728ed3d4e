"""Whatever a truth is or an author's part of a learner does, the shard goes on, and a replay comes to its state."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.core.actions import Failed, Ok
from spillway.agents.core.crash_suspects import Suspects
from spillway.agents.core.workers import Batch
from spillway.agents.learning.learner import Learner
from spillway.agents.learning.selection import Exp4
from spillway.agents.learning.velox.model import VeloxModel
from spillway.agents.learning.velox.served import Served
from spillway.agents.models.state import copied, fingerprint
from spillway.agents.models.stateful import Machine
from spillway.checkpoint.state import leaves
from spillway.lineage.limits import DEFAULT_LIMITS
from spillway.producers.published import Row, encode_row
from tests.unit.core.test_odd_answers import ERRORS, ODD, answers, sound
from tests.unit.live.stateful.builders import request, stateful_work

MEMBERS = ["a", "b"]
DOES = {}
"""What an author's parts do, by name: an error that they raise, or what they return."""


def done(name, otherwise):
    """What an author's part of this name does, else `otherwise`."""
    if name not in DOES:
        return otherwise
    if isinstance(DOES[name], BaseException):
        raise DOES[name]
    return DOES[name]


class OddSelection(Exp4):
    """An author's selection that cannot take some observations."""

    def observe(self, state, members, asked):
        strange = any(one.loss == 1.0 for one in asked.values())
        return (
            done("observe", super().observe(state, members, asked))
            if strange
            else super().observe(state, members, asked)
        )


def odd_loss(truth, answer):
    return done("loss", float(truth != answer)) if truth != answer else 0.0


class OddModel(VeloxModel):
    """An author's Velox model that cannot take some observations."""

    dimension, theta = 2, "t"

    def features(self, item):
        if item == "strange":
            return done("features", np.ones(2))
        return np.array([1.0, float(len(str(item)))])

    def loss(self, observed, predicted, item, user):
        if observed > 4:
            return done("rating", 1.0)
        return super().loss(observed, predicted, item, user)


def ensembles(name):
    odd = name == "odd"
    selection = {"name": f"{__name__}:OddSelection" if odd else name}
    return Learner("kind", MEMBERS, selection, f"{__name__}:odd_loss" if odd else "zero_one")


def velox(_name):
    return Served(OddModel, {})


class Shard:
    """A shard's member, as a primary does: batches are recorded, and a state that was half changed is given up."""

    def __init__(self, make):
        self.make, self.results, self.recorded, self.ended = make, {}, [], False
        self.work = stateful_work()
        self.machine, self.suspects = Machine("s", make()), Suspects()

    def take(self, requests):
        waiting = [Batch(0, requests, 0.0, 0.0)]
        while waiting:
            (batch, *waiting) = [part for each in waiting for part in self.suspects.apart(each)]
            before = {key: copied(state) for key, state in self.machine.state.items()}
            ids = [request.request_id for request in batch.requests]
            computed = self.work.compute(self.machine, batch, tried=bool(self.suspects) and self.suspects.tries(ids))
            updated = self.work.update(self.machine, batch)
            if updated.error is not None:
                assert self.suspects.raised(ids), "the member ends"
                self.machine = Machine("s", self.make(), before)
                waiting.insert(0, batch)
                continue
            self.suspects.durable(ids)
            self.results |= dict(zip(ids, computed.results, strict=True))
            pairs = zip(batch.requests, computed.results, strict=True)
            self.recorded.append([request for request, result in pairs if isinstance(result, Ok)])

    def replayed(self):
        machine = Machine("s", self.make())
        for requests in self.recorded:
            if requests:
                self.work.again(machine, requests)
        return machine


numbers = st.sampled_from([0.0, 1.0, 5.0, -1, 1e308, -1e154, 1e200, -(10**30), 5e-324, 2**63]) | st.floats()
# What gives an odd value: hypothesis may look into what it draws, which some of these do not bear.
odd = st.integers(0, len(ODD) - 1).map(lambda n: lambda: ODD[n]) | (
    numbers | st.sampled_from(["strange", "9" * 5000, {"0": "t"}, np.ones(1), np.float64(0.5)]) | sound
).map(lambda value: lambda: value)
PATHS = [
    ("truth",),
    ("truth", "item"),
    ("truth", "value"),
    ("truth", "generations"),
    ("truth", "generations", "9" * 5000),
    ("truth", "generations", "1"),
    ("outputs",),
    ("outputs", "item"),
    ("flags",),
    ("flags", "rank"),
    ("flags", "kind"),
    ("flags", "kind", "members"),
    ("flags", "kind", "members", "a"),
    ("flags", "kind", "members", "a", "p"),
    ("flags", "kind", "members", "a", "answer"),
    ("flags", "kind", "members", "gone"),
    ("flags", "kind", "rules"),
    ("flags", "kind", "rules", "epoch"),
    ("flags", "kind", "rules", "members"),
    ("flags", "kind", "rules", "selection"),
    ("flags", "kind", "rules", "selection", "eta"),
    ("flags", "kind", "rules", "selection", "forgetting"),
]


@st.composite
def feedbacks(draw):
    """One that is well-formed, but for something odd at up to two places."""
    name = draw(st.sampled_from(["exp3", "exp4", "epsilon", f"{__name__}:OddSelection"]))
    truth = {"item": draw(st.sampled_from(["i", "jj", "strange"])), "value": draw(numbers)}
    members = {"a": {"p": 1.0, "answer": 1}, "b": {"p": 0.5, "answer": 2}}
    rules = {"epoch": draw(st.integers(0, 3)), "members": MEMBERS, "selection": {"name": name}}
    made = {
        "truth": draw(st.sampled_from([1, 2]) | st.just(truth)),
        "outputs": {"item": "i", "items": ["i"]},
        "flags": {"kind": {"members": members, "rules": rules}, "rank": {"theta": "t", "random": [[0, 1.0]]}},
    }
    for *path, last in draw(st.lists(st.sampled_from(PATHS), max_size=2)):
        at = made
        for each in path:
            at = at.setdefault(each, {}) if type(at) is dict else {}
        if type(at) is dict:
            value = draw(odd)()
            at[last] = dict(value) if type(value) is dict else value  # what is odd is shared by examples
    return made


does = st.dictionaries(
    st.sampled_from(["observe", "loss", "features", "rating"]),
    st.integers(0, len(ERRORS) - 1).map(lambda n: ERRORS[n])
    | st.sampled_from([None, 0.5, {"a": [math.nan]}, {"a": [1.0]}, {1: [1.0]}, {"a": "x"}, np.full(2, 1e300)])
    | answers,
)
FINE = {
    "truth": 1,
    "outputs": {"item": "i"},
    "flags": {"kind": {"members": {"a": {"p": 1.0, "answer": 1}, "b": {"p": 1.0, "answer": 1}}}},
}


@given(
    st.sampled_from([(ensembles, "odd"), (ensembles, "exp3"), (ensembles, "epsilon"), *[(velox, "")] * 3]),
    st.lists(st.lists(st.tuples(feedbacks(), st.sampled_from(["ada", "bob"])), min_size=1, max_size=4), max_size=4),
    does,
)
def test_whatever_is_fed_back_the_shard_goes_on(learner, batches, author):
    make, name = learner
    DOES.clear()
    DOES.update(author)
    shard, number = Shard(lambda: make(name)), 0
    for batch in [*batches, [(FINE, "ada"), (FINE, "bob")]]:
        requests = [request(number + n, inputs, key) for n, (inputs, key) in enumerate(batch)]
        number += len(batch)
        with np.errstate(all="ignore"):
            shard.take(requests)
    assert len(shard.results) == number
    for result in shard.results.values():
        assert isinstance(result, Ok) or (result.reason in ("model-raised", "bad-result") and result.text)
    assert all(isinstance(shard.results[f"r{number - n}"], Ok) for n in (1, 2))
    assert fingerprint(shard.replayed().state) == fingerprint(shard.machine.state)
    assert finite(shard.machine.state)
    for _, value in shard.machine.published(list(shard.machine.state)):
        encode_row(Row(value, 1, 1), DEFAULT_LIMITS)


def finite(state):
    arrays = [np.asarray(leaf) for _, leaf in leaves(state, what="s")]
    return all(np.isfinite(array).all() for array in arrays if array.dtype.kind == "f")


@pytest.mark.parametrize("error", ERRORS, ids=type)
@pytest.mark.parametrize("where", ["compute", "update", "key", "reads", "publish"])
def test_whatever_is_raised_fails_the_query_that_it_is_raised_for(where, error):
    """Of any model: of `publish` nothing is heard here."""

    class Model:
        def initialize(self):
            return {"n": 0}

        def key(self, query):
            return self.does("key", query) or "k"

        def reads(self, query):
            return bool(self.does("reads", query))

        def compute(self, states, batch):
            return [self.does("compute", query) or {"n": states["k"]["n"]} for query in batch]

        def update(self, states, batch, outputs):
            for query in batch:
                states["k"]["n"] += 1
                self.does("update", query)
            return states

        def publish(self, state):
            return state["n"]

        @staticmethod
        def does(what, query):
            if what == where and query["bad"]:
                raise error

    shard, draw = Shard(Model), random.Random(1)
    for number in range(0, 24, 3):
        shard.take([request(number + n, {"bad": draw.random() < 0.3}, "k") for n in range(3)])
    failed = [result for result in shard.results.values() if isinstance(result, Failed)]
    assert bool(failed) == (where != "publish")
    assert all(type(error).__name__ in each.text for each in failed)
    assert shard.machine.state["k"]["n"] == 24 - len(failed) == shard.replayed().state["k"]["n"]
