import pytest

from agents.models import child as child_module
from agents.models.child import ChildModel, ModelCrashedError, ModelNotLoadedError, ModelRaisedError
from agents.models.inputs import Inputs
from lineage.errors import ModelError


def inputs(**values):
    return Inputs(values, {}, "r")


@pytest.fixture
def child(samples):
    model = ChildModel("s", f"{samples}:Fragile", {})
    yield model
    model.close()


def test_a_batch_runs_in_the_child(child):
    assert child.predict([inputs(x=1), inputs(x=2)]) == [{"y": 1}, {"y": 2}]


def test_what_the_model_raises_is_told_and_the_child_lives_on(child):
    with pytest.raises(ModelRaisedError, match="ValueError: cannot stand this one"):
        child.predict([inputs(act="raise")])
    with pytest.raises(ModelRaisedError, match="cannot leave its process"):
        child.predict([inputs(act="object")])
    assert child.predict([inputs(x=1)]) == [{"y": 1}]


def test_a_crash_fails_the_batch_is_reported_and_the_next_batch_is_served(child):
    told = []
    child.on_restart = told.append
    with pytest.raises(ModelCrashedError, match="died while it ran a batch of 2"):
        child.predict([inputs(x=1), inputs(act="die")])
    assert child.predict([inputs(x=5)]) == [{"y": 5}]
    assert child.restarts == 1
    assert "exit code 9" in told[0]


def test_a_model_that_does_not_load_in_the_child_says_why(samples):
    with pytest.raises(ModelError, match="no weights here"):
        ChildModel("s", f"{samples}:BadConstructor", {})


def test_a_batch_beyond_its_time_out_costs_the_process_and_the_next_one_is_served(samples):
    model = ChildModel("s", f"{samples}:Fragile", {}, timeout=0.2)
    try:
        with pytest.raises(ModelCrashedError, match=r"a batch of 2 for more than 0.2 s, its time-out"):
            model.predict([inputs(x=1), inputs(x=3600, act="sleep")])
        assert model.restarts == 1
        model._timeout = 60.0
        assert model.predict([inputs(x=5)]) == [{"y": 5}]
    finally:
        model.close()


def test_one_that_hangs_while_it_loads_is_ended(monkeypatch):
    monkeypatch.setattr(child_module, "LOAD_SECONDS", 1.0)
    with pytest.raises(ModelNotLoadedError, match="was not loaded within 1 s"):
        ChildModel("s", "tests.unit.models.declared_models:Hangs", {})
