"""The contract of stateful models: its form, the order of its calls, and what a machine refuses."""

import pytest

from spillway.agents.models.loading import load_model, load_stateful_model
from spillway.agents.models.stateful import SHARED, Machine, check_model, fingerprints, is_stateful
from spillway.lineage.errors import ModelError
from tests.state_runs import run
from tests.unit.models import stateful_models as models


def told(*values):
    return [{"x": value} for value in values]


def of(**sums):
    return [{"user": user, "x": value} for user, value in sums.items()]


def test_a_model_is_shared_or_keyed():
    assert check_model("stage 's'", models.Total()) == "shared"
    assert check_model("stage 's'", models.Sums()) == "keyed"
    assert is_stateful(models.Total())
    assert not is_stateful(object())


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            models.NoUpdate(),
            r"stage 's': NoUpdate has no method update\(self, state, batch, outputs\); a stateful model",
        ),
        (
            models.ShortUpdate(),
            r"ShortUpdate.update\(batch.*|ShortUpdate.update\(state, batch\) cannot be called as update",
        ),
        (models.AsyncCompute(), r"AsyncCompute.compute must be a plain method"),
        (models.KeyAttribute(), r"KeyAttribute.key is str, not a method; write key\(self, query\)"),
        (models.Unpooled(), r"Unpooled.initialize\(\) cannot be called as initialize\(self, shared\)"),
    ],
)
def test_a_model_of_another_form_is_refused_by_name(model, message):
    with pytest.raises(ModelError, match=message):
        check_model("stage 's'", model)


def test_updates_follow_computes_and_count_as_versions():
    done = run(models.Total(), [told(1, 2), told(3)])
    assert [[each["before"] for each in batch] for batch in done.outputs] == [[0, 0], [6]]
    assert done.version == 2
    assert done.state["batches"] == 2
    assert done.state["total"].tolist() == [6, 6]


def test_queries_that_only_read_are_answered_and_kept_from_the_update():
    done = run(models.Total(), [[*told(1), {}], [{}], told(2)])
    assert [[each["before"] for each in batch] for batch in done.outputs] == [[0, 0], [2], [2]]
    assert done.version == 2


def test_a_replay_goes_on_from_a_state_and_its_version():
    whole = run(models.Total(), [told(1), told(2), told(4)])
    half = run(models.Total(), [told(1)])
    rest = run(models.Total(), [told(2), told(4)], state=half.state, version=half.version)
    assert rest.version == whole.version == 3
    assert fingerprints("shared", rest.state) == fingerprints("shared", whole.state)


def test_a_key_has_a_state_of_its_own_from_its_first_change():
    machine = Machine("stage 's'", models.Sums())
    machine.compute([*of(a=1, b=2), {"user": "c"}])
    assert machine.state == {}
    assert machine.update() == ("a", "b")
    assert {key: float(state["sum"][0]) for key, state in machine.state.items()} == {"a": 1, "b": 2}


def test_an_update_is_given_its_batch_s_keys_only():
    machine = Machine("stage 's'", models.Sums())
    for batch in (of(a=1, b=2, c=3), of(b=5)):
        machine.compute(batch)
        before = fingerprints("keyed", machine.state)
        touched = machine.update()
    after = fingerprints("keyed", machine.state)
    assert touched == ("b",)
    assert {key for key in after if after[key] != before[key]} == {"b"}


@pytest.mark.parametrize("model", [models.Eager(), models.EagerSums()])
def test_a_compute_that_changes_the_state_is_found_out(model):
    batch = [{"user": "a", "x": 1.0}]
    run(model, [batch])  # unseen without verifying
    with pytest.raises(ModelError, match=r"Eager\w*.compute changes the state, which it may only read"):
        run(model, [batch], verify=True)


def test_a_computed_batch_is_updated_or_discarded_before_the_next():
    machine = Machine("stage 's'", models.Total())
    machine.compute(told(1))
    assert machine.pending
    with pytest.raises(ModelError, match="the previous batch has not been updated"):
        machine.compute(told(2))
    machine.discard()
    machine.compute(told(2))
    machine.update()
    assert machine.state["total"].tolist() == [2, 2]
    assert machine.version == 1
    assert not machine.pending


def test_a_failed_update_leaves_the_machine_unusable():
    class Failing(models.Total):
        def update(self, state, batch, outputs):
            state["total"] += 1
            raise ZeroDivisionError

    machine = Machine("stage 's'", Failing())
    machine.compute(told(1))
    with pytest.raises(ZeroDivisionError):
        machine.update()
    with pytest.raises(ModelError, match="restart from an intact version"):
        machine.compute(told(1))
    assert machine.version == 0


def test_a_failed_compute_leaves_the_state_as_it_was():
    machine = Machine("stage 's'", models.Sums())
    with pytest.raises(KeyError):
        machine.compute([{"x": 1}])
    machine.compute(of(a=1))
    assert machine.update() == ("a",)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "Odd.compute must return a list of 2 mappings, one per query, not NoneType"),
        ([{}], "not 1 results"),
        ([{}, 3], "Odd.compute must return mappings, not int"),
    ],
)
def test_outputs_are_one_mapping_per_query(returned, message):
    class Odd(models.Total):
        def compute(self, state, batch):
            return returned

    with pytest.raises(ModelError, match=message):
        run(Odd(), [told(1, 2)])


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, r"must return a mapping of the given keys \('a', 'b'\) to states, not NoneType"),
        ({"a": {}}, r"\('a', 'b'\) to states, not 'a'"),
        ({"a": {}, "b": {}, "c": {}}, r"not 'a', 'b', 'c'"),
        ({"a": {}, "b": 3}, r"update, key 'b': the state is a int: give a mapping"),
    ],
)
def test_a_keyed_update_returns_the_keys_that_it_was_given(returned, message):
    class Odd(models.Sums):
        def update(self, states, batch, outputs):
            return returned

    with pytest.raises(ModelError, match=message):
        run(Odd(), [of(a=1, b=2)])


def test_a_key_is_a_string():
    class Numbered(models.Sums):
        def key(self, query):
            return 3

    with pytest.raises(ModelError, match=r"Numbered.key must return a string, not int; write str"):
        run(Numbered(), [of(a=1)])


@pytest.mark.parametrize("key", ["", "x" * 600])
def test_a_key_is_one_that_the_log_keeps(key):
    with pytest.raises(ModelError, match=r"Sums.key: '.* cannot be a key of a state: use a text of 1 to 512 bytes"):
        run(models.Sums(), [of(**{key: 1})])


def test_models_are_loaded_by_name_as_what_the_stage_is():
    name = "tests.unit.models.stateful_models:Total"
    assert isinstance(load_stateful_model("s", name, {}), models.Total)
    with pytest.raises(
        ModelError, match=r"stage 's': model .*Total has no method predict\(batch\); it has the methods of a st"
    ):
        load_model("s", name, {})
    with pytest.raises(ModelError, match=r"stage 's': model .*NoUpdate has no method update"):
        load_stateful_model("s", "tests.unit.models.stateful_models:NoUpdate", {})


def test_a_rehearsal_leaves_no_trace():
    shared, keyed = Machine("s", models.Total()), Machine("s", models.Sums())
    shared.compute(told(1))
    shared.update()
    keyed.compute(of(ann=1))
    keyed.update()
    before = fingerprints("shared", shared.state), fingerprints("keyed", keyed.state)
    assert shared.rehearse(told(5)) is None
    assert keyed.rehearse(of(ann=5, bob=6)) is None
    assert (fingerprints("shared", shared.state), fingerprints("keyed", keyed.state)) == before
    assert (shared.version, shared.pending, keyed.version, keyed.pending) == (1, False, 1, False)


def test_a_rehearsal_gives_what_the_update_raises():
    machine = Machine("s", models.Total())
    assert isinstance(machine.rehearse([{"x": "five"}]), Exception)
    assert machine.compute(told(1)) == [{"before": 0.0, "x": 1}]


def test_keys_begin_with_what_they_share_and_those_beyond_the_most_keep_nothing():
    machine = Machine("here", models.Pooled(), verify=True)

    def learn(**values):
        answers = machine.compute(of(**values))
        return [answer["value"] for answer in answers], set(machine.update())

    assert dict(machine.published([SHARED, "nobody"])) == {SHARED: 0.0}
    assert learn(ada=4.0) == ([0.0], {"ada", SHARED})
    assert learn(bob=2.0, eve=9.0) == ([4.0, 4.0], {"bob", SHARED})
    assert learn(eve=5.0, ada=1.0) == ([5.0, 4.0], {"ada", SHARED})  # eve is new each time
    assert dict(machine.published(["ada", "eve", SHARED])) == {"ada": 1.0, SHARED: 21.0 / 5}
    assert set(machine.state) == {"ada", "bob", SHARED}
    again = run(models.Pooled(), [of(eve=1.0)], state=dict(machine.state), version=machine.version)
    assert again.outputs == [[{"value": 21.0 / 5}]]
    with pytest.raises(ModelError, match="reserved for the state that all keys share; use another key"):
        machine.compute([{"user": SHARED, "x": 1.0}])
