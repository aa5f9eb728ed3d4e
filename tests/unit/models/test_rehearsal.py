"""A model is tried before it serves: each rule that it may break has an error of its own."""

import pytest

from agents.models.per_key import PerKey
from agents.models.rehearsal import rehearse
from lineage.errors import ModelError
from tests.unit.models import stateful_models as models

SHARED = [[{"x": float(number)}] for number in range(4)]
KEYED = [[{"user": user, "x": 1.0} for user in users] for users in ("ab", "b", "ac", "b")]


def test_a_model_that_keeps_the_contract_passes():
    found = rehearse("here", models.Total, SHARED)
    assert (found.kind, found.versions, found.keys, found.size, found.repeats) == ("shared", 4, 0, 16, True)
    found = rehearse("here", models.Sums, KEYED)
    assert (found.kind, found.versions, found.keys, found.size) == ("keyed", 4, 3, 24)


@pytest.mark.parametrize(
    ("make", "batches", "message"),
    [
        (models.Unseeded, SHARED, "Unseeded.initialize gives another state in every process; seed"),
        (models.Eager, SHARED, "Eager.compute changes the state"),
        (models.Grasping, KEYED, "Grasping.update changes the state of a key that is not in its batch"),
        (
            models.Secretive,
            SHARED,
            "here: Secretive: a model built anew does not go on from a state as it went on before",
        ),
        (models.Dicing, SHARED, "Dicing: a model built anew does not go on"),
        (models.NoUpdate, SHARED, "NoUpdate has no method update"),
    ],
)
def test_each_broken_rule_has_its_error(make, batches, message):
    with pytest.raises(ModelError, match=message):
        rehearse("here", make, batches)


def test_a_model_that_is_said_to_be_random_may_go_on_otherwise():
    assert not rehearse("here", models.Dicing, SHARED, random=True).repeats
    assert rehearse("here", models.Total, SHARED, random=True).repeats


def test_a_model_that_forgets_nothing_when_rolled_back_is_found_out():
    class Sticky(models.Total):
        """Goes on with its own state when it has one, whatever it is given."""

        own = None

        def compute(self, state, batch):
            return super().compute(self.own or state, batch)

        def update(self, state, batch, outputs):
            self.own = super().update(self.own or state, batch, outputs)
            return self.own

    with pytest.raises(ModelError, match="Sticky: the same model, rolled back does not go on"):
        rehearse("here", Sticky, SHARED)


def counting(state, query):
    return {"seen": state["seen"]}, {"seen": state["seen"] + 1}


def test_a_step_per_key_follows_its_own_key_within_a_batch():
    def make():
        return PerKey(
            lambda: {"seen": 0}, counting, key=lambda query: query["user"], reads=lambda q: q.get("asks", False)
        )

    batch = [{"user": "a"}, {"user": "b"}, {"user": "a"}, {"user": "a", "asks": True}]
    model = make()
    states = {"a": {"seen": 5}, "b": {"seen": 0}}
    assert [each["seen"] for each in model.compute(states, batch)] == [5, 0, 6, 5]
    assert model.update(states, batch[:3], []) == {"a": {"seen": 7}, "b": {"seen": 1}}
    assert rehearse("here", make, [batch, batch[1:], batch[3:]]).versions == 2
