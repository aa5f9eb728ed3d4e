"""A model is tried before it serves: each rule that it may break has an error of its own."""

import json

import numpy as np
import pytest

from spillway.agents.models.model_errors import LOG_SECONDS, ModelRaisedError, RaisedLog, trace_of, words_of
from spillway.agents.models.per_key import PerKey
from spillway.agents.models.placement import UnfitStateError, refuse_unfit
from spillway.agents.models.warm_up import rehearse
from spillway.checkpoint.state import flatten
from spillway.lineage.errors import ModelError
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
        (models.Unseeded, SHARED, "Unseeded.initialize returns a different state in every process; seed"),
        (models.Eager, SHARED, "Eager.compute changes the state"),
        (models.Grasping, KEYED, "Grasping.update changes the state of a key that is not in its batch"),
        (
            models.Secretive,
            SHARED,
            "here: Secretive: a model built anew does not continue from a state as the first run did",
        ),
        (models.Dicing, SHARED, "Dicing: a model built anew does not continue"),
        (models.NoUpdate, SHARED, "NoUpdate has no method update"),
    ],
)
def test_each_broken_rule_has_its_error(make, batches, message):
    with pytest.raises(ModelError, match=message):
        rehearse("here", make, batches)


def test_a_model_that_is_said_to_be_random_may_go_on_otherwise():
    assert not rehearse("here", models.Dicing, SHARED, random=True).repeats
    assert rehearse("here", models.Total, SHARED, random=True).repeats


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


# What is said, and logged, of an exception in a user's code.


def raised_by(function):
    try:
        function()
    except Exception as error:  # noqa: BLE001
        return error
    raise AssertionError("nothing was raised")


def in_a_library():
    json.loads("{")


def here():
    raise ValueError("no twos")


LINE = here.__code__.co_firstlineno + 1


def test_the_users_line_is_named():
    assert words_of(raised_by(here)) == f"ValueError: no twos (tests/unit/models/test_rehearsal.py:{LINE} in here)"


def test_the_users_line_is_named_where_a_library_raises():
    assert "JSONDecodeError" in words_of(raised_by(in_a_library))
    assert words_of(raised_by(in_a_library)).endswith(" in in_a_library)")


def test_an_error_without_a_frame_has_its_name_alone():
    assert words_of(KeyError("x")) == "KeyError: 'x'"


def test_a_file_elsewhere_is_named_without_its_folder(tmp_path):
    code = compile("def f():\n    raise ValueError('no')", str(tmp_path / "models.py"), "exec")
    names = {}
    exec(code, names)
    assert words_of(raised_by(names["f"])) == "ValueError: no (models.py:2 in f)"


def test_what_another_process_said_is_passed_on():
    error = raised_by(here)
    told = ModelRaisedError(words_of(error), trace_of(error))
    assert words_of(told) == words_of(error)
    assert trace_of(told) == trace_of(error)
    assert trace_of(error).endswith("ValueError: no twos\n")


@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_log_has_each_place_once_a_minute_with_the_traceback_and_counts(caplog, elsewhere):
    now = [100.0]
    log = RaisedLog("detect", lambda: now[0])
    error = raised_by(here)
    if elsewhere:
        error = ModelRaisedError(words_of(error), trace_of(error))
    for _ in range(3):
        assert log.words(error) == words_of(error)
    log.words(raised_by(in_a_library), "choose")
    assert [record.message.splitlines()[0] for record in caplog.records] == [
        f"stage 'detect': the model raised: {words_of(error)}",
        f"stage 'detect': choose raised: {words_of(raised_by(in_a_library))}",
    ]
    assert "Traceback (most recent call last)" in caplog.records[0].message
    caplog.clear()
    now[0] += LOG_SECONDS
    log.words(error)
    log.words(error)
    (again,) = caplog.records
    assert again.message.startswith("stage 'detect': the model raised (2 more times in the 60 s before): ValueError")


def test_the_log_forgets_the_oldest_place(monkeypatch, caplog):
    monkeypatch.setattr("spillway.agents.models.model_errors._MOST_PLACES", 1)
    log = RaisedLog("s", lambda: 0.0)
    for _ in range(2):
        log.words(raised_by(here))
        log.words(raised_by(in_a_library))
    assert len(caplog.records) == 4


# States that a model cannot go on from are refused, where the model has promised what its states are like.


class Weights:
    fixed_state = True

    def initialize(self):
        return {"w": np.zeros((3, 4), np.float32), "steps": 0, "layers": [np.zeros(2), {"b": np.ones(1, np.int64)}]}


class Grows(Weights):
    fixed_state = False


def state(**changed):
    return {**Weights().initialize(), **changed}


@pytest.mark.parametrize("more", [{}, {"steps": 17}, {"steps": "another value"}, {"momentum": np.zeros(9)}])
def test_what_the_model_makes_and_what_comes_to_it_fits(more):
    refuse_unfit("p", Weights(), flatten(state(**more)).entries)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"w": np.zeros((5, 4), np.float32)}, r"'w' is numpy float32 \[5, 4\], but the model has .* \[3, 4\]"),
        ({"w": np.zeros((3, 4))}, r"'w' is numpy float64 \[3, 4\]"),
        ({"w": 3}, "'w' is"),
        ({"layers": [np.zeros(2)]}, "missing, but the model has numpy int64"),
    ],
)
def test_what_another_model_made_is_refused(changed, said):
    with pytest.raises(UnfitStateError, match=f"^p: the state in the log does not fit Weights: .*{said}") as caught:
        refuse_unfit("p", Weights(), flatten(state(**changed)).entries)
    assert caught.value.exit_code == 2
    refuse_unfit("p", Grows(), flatten(state(**changed)).entries)


class Plain:
    """Says nothing of its states. Each update adds `n` to the first array, and `wide` more numbers to it."""

    wide, reads_only = 0, False

    def initialize(self):
        return {"w": np.zeros(3)}

    def compute(self, _state, batch):
        return [{} for _ in batch]

    def update(self, state, batch, _outputs):
        return {"w": np.append(state["w"] + batch[0]["n"], [0.0] * self.wide), "n": np.ones(1)}

    def reads(self, _query):
        return self.reads_only

    def example(self):
        return {"n": 1.0}


class Keyed(Plain):
    def key(self, query):
        return query.key

    def update(self, states, batch, outputs):
        return {key: super(Keyed, self).update(state, batch, outputs) for key, state in states.items()}


@pytest.mark.parametrize("kind", [Plain, Keyed])
def test_an_update_with_its_example_shows_what_a_plain_models_states_are_like(kind):
    refuse_unfit("p", kind(), flatten({"w": np.zeros(3)}).entries)
    with pytest.raises(UnfitStateError, match=r"'w' is numpy float64 \[5\].* set 'fixed_state = False'"):
        refuse_unfit("p", kind(), flatten({"w": np.zeros(5)}).entries)


@pytest.mark.parametrize(
    "shown", [{"wide": 1}, {"reads_only": True}, {"fixed_state": False}, {"example": None}, {"example": lambda: [{}]}]
)
def test_nothing_is_refused_where_the_trial_shows_nothing(shown):
    model = Plain()
    for name, value in shown.items():
        setattr(model, name, value)
    refuse_unfit("p", model, flatten({"w": np.zeros(5)}).entries)
