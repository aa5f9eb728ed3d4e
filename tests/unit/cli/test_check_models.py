"""`spillway check --models` finds what is wrong with a model wherever a pipeline file names one."""

import pytest

from spillway.agents.cli.main import run

MODELS = """
class Good:
    def __init__(self, size=1):
        pass

    def predict(self, batch):
        return [{"label": 1} for _ in batch]


class Bad(Good):
    def __init__(self, size=1):
        raise ValueError("the weights are missing")


class Learns:
    def initialize(self):
        return {}

    def key(self, query):
        return "k"

    def compute(self, state, batch):
        return [{} for _ in batch]

    def update(self, state, batch, outputs):
        raise SystemExit


class BadLearns(Learns):
    def initialize(self):
        raise ValueError("the weights are missing")
"""
PLACES = {
    "model": "  - {name: s, model: MODEL}\n",
    "member": "  - name: s\n    ensemble: {members: {one: {model: 'checked_models:Good'}, two: {model: MODEL}}}\n",
    "variant": "  - name: s\n    variants:\n      app: a\n      of:\n"
    "        one: {model: MODEL, architecture: a, accuracy: .9, takes: {1: 8ms}}\n",
    "copies": "  - {name: s, model: 'checked_models:Good', copies: {model: MODEL}}\n",
    "learner": "  - {name: s, model: 'checked_models:Good'}\n"
    "learners:\n  - {name: l, model: LEARNS, state: {kind: keyed}}\n",
}
WRONG = {
    "Nope": "has no 'Nope'",
    "Bad": "the weights are missing",
}


def checked(tmp_path, monkeypatch, capsys, place, name, *options):
    (tmp_path / "checked_models.py").write_text(MODELS)
    learns = {"Bad": "BadLearns", "Good": "Learns"}.get(name, name)
    text = PLACES[place].replace("MODEL", f"'checked_models:{name}'").replace("LEARNS", f"'checked_models:{learns}'")
    (tmp_path / "p.yaml").write_text(f"name: p\nslo: 1s\nstages:\n{text}")
    monkeypatch.chdir(tmp_path)
    code = run(["check", "p.yaml", *options])
    told = capsys.readouterr()
    return code, told.out + told.err


OTHERS = [place for place in PLACES if place != "model"]


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("Nope", "model"),
        *(pytest.param(name, place, marks=pytest.mark.nightly) for name in WRONG for place in OTHERS),
    ],
)
def test_a_model_is_constructed_wherever_it_is_named(tmp_path, monkeypatch, capsys, place, name):
    code, told = checked(tmp_path, monkeypatch, capsys, place, name, "--models")
    assert code == 2, told
    assert told.count(WRONG[name]) == 1
    assert "p.yaml:" in told


def test_each_model_that_cannot_be_constructed_is_told_of(tmp_path, monkeypatch, capsys):
    together = "".join(text.replace("name: s", f"name: {place}") for place, text in PLACES.items())
    monkeypatch.setitem(PLACES, "all", together + "sinks: all\n")
    code, told = checked(tmp_path, monkeypatch, capsys, "all", "Bad", "--models")
    assert code == 2, told
    assert told.count(WRONG["Bad"]) == len(PLACES) - 1


@pytest.mark.parametrize(
    "place", ["learner", *(pytest.param(each, marks=pytest.mark.nightly) for each in PLACES if each != "learner")]
)
def test_models_that_can_be_constructed_are_told_of_as_such(tmp_path, monkeypatch, capsys, place):
    code, told = checked(tmp_path, monkeypatch, capsys, place, "Good", "--models")
    assert code == 0, told
    assert "all could be constructed" in told


def test_models_are_tried_only_where_functions_are_looked_up_too(tmp_path, monkeypatch, capsys):
    split = "  - {name: s, model: MODEL, split: 'checked_models:none'}\n  - {name: t, model: MODEL, after: s}\n"
    monkeypatch.setitem(PLACES, "split", split)
    code, told = checked(tmp_path, monkeypatch, capsys, "split", "Good", "--models")
    assert code == 2
    assert "has no 'none'" in told
