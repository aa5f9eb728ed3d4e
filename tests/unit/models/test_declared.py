"""A model against what its stage declares of its state; and models tried in a process of their own."""

import threading

import pytest

from spillway.agents.models import slow
from spillway.agents.models.declared import UndeclaredError, load_declared, try_model
from spillway.agents.models.loading import load_function
from spillway.agents.models.model_check import ModelCheck, Verdict, verdicts
from spillway.lineage.errors import ModelError
from tests.unit.models import stateful_models
from tests.waiting import PATIENT_SECONDS, gone, until

HERE = "tests.unit.models.declared_models"
THERE = "tests.unit.models.stateful_models"


def test_a_model_that_is_as_declared():
    assert isinstance(load_declared("s", f"{THERE}:Total", {}, "cpu", "shared"), stateful_models.Total)
    for name, declared in ((f"{THERE}:Total", "shared"), (f"{THERE}:Sums", "keyed"), (f"{HERE}:Plain", None)):
        try_model("s", name, {}, declared)


@pytest.mark.parametrize(
    ("name", "declared", "message"),
    [
        (
            f"{THERE}:Total",
            "keyed",
            "Total has no method key.self, query.; say 'state: shared', or give it one that re",
        ),
        (f"{THERE}:Sums", "shared", "Sums has a method key, so it keeps a state per key; say 'state: keyed', or drop"),
        (f"{HERE}:Plain", "keyed", "Plain has predict and keeps no state; drop 'state: keyed', or give it initialize"),
    ],
)
def test_a_declaration_that_is_at_fault(name, declared, message):
    with pytest.raises(UndeclaredError, match=f"^stage 's': model '{name}': {message}"):
        try_model("s", name, {}, declared)


@pytest.mark.parametrize(
    ("name", "declared", "message"),
    [
        (
            f"{THERE}:Total",
            None,
            "it has the methods of a stateful model, but the stage declares no state: add 'state: shared'",
        ),
        (f"{THERE}:Sums", None, "the stage declares no state: add 'state: keyed'"),
        (
            f"{HERE}:Half",
            "shared",
            r"Half has no method update\(self, state, batch, outputs\); a stateful model has init",
        ),
        (f"{HERE}:Opaque", "shared", "Opaque.initialize: the state, entry 'fit': a builtins.object cannot be"),
        (
            f"{HERE}:Raises",
            "shared",
            "Raises.initialize failed: ZeroDivisionError: division by zero .*declared_models.p",
        ),
        (f"{HERE}:none", "shared", "has no 'none'"),
        (f"{HERE}:Async", None, "Async.predict must be a plain method that returns its result, neither async nor"),
        (f"{HERE}:AsyncStream", None, "AsyncStream.predict must be a plain method"),
        (f"{HERE}:Generates", None, "Generates.predict must be a plain method"),
        (f"{HERE}:OneByOne", None, r"OneByOne.predict\(query, batch\) cannot be called as predict\(self, batch\)"),
        (f"{HERE}:AsyncUpdate", "shared", "AsyncUpdate.update must be a plain method"),
    ],
)
def test_a_model_that_is_at_fault(name, declared, message):
    with pytest.raises(ModelError, match=message) as caught:
        try_model("s", name, {}, declared)
    assert not isinstance(caught.value, UndeclaredError)


def test_a_constructor_that_hangs_is_bounded_and_the_next_model_is_tried():
    hangs, half = ModelCheck("a", f"{HERE}:Hangs", {}, None), ModelCheck("b", f"{HERE}:Half", {}, "shared")
    found = list(verdicts([hangs, half], within=5.0))
    assert [verdict.stage for verdict in found] == ["a", "b"]
    assert f"model '{HERE}:Hangs': it was not constructed within 5 s" in found[0].text


def test_a_model_that_takes_long_to_construct_is_named_with_the_line_that_it_is_at(monkeypatch, capfd):
    monkeypatch.setattr(slow, "SLOW_SECONDS", 0.0)
    told = threading.Event()
    monkeypatch.setattr(slow, "print", lambda *text, **_: (print(*text), told.set()), raising=False)
    with slow.named_if_slow("stage 's': model 'm:M'"):
        assert told.wait(PATIENT_SECONDS)
    said = capfd.readouterr().out
    assert "spillway: stage 's': model 'm:M': it is being imported and constructed" in said
    assert "threading.py" in said  # where the event waits


def test_an_async_function_cannot_choose():
    with pytest.raises(ModelError, match=r"choose .* must be a plain function"):
        load_function("s", "choose", f"{HERE}:choose")


def test_models_are_tried_in_a_process_of_their_own(capfd):
    found = list(
        verdicts(
            [
                ModelCheck("a", f"{THERE}:Total", {}, "shared"),
                ModelCheck("b", f"{THERE}:Total", {}, "keyed"),
                ModelCheck("c", f"{HERE}:Dies", {}, "shared"),
                ModelCheck("f", f"{THERE}:Sums", {}, "keyed", publishes=True),
                ModelCheck("g", f"{THERE}:Pooled", {}, "keyed", publishes=True),
                ModelCheck("d", f"{HERE}:Half", {}, "shared"),
                ModelCheck("e", f"{HERE}:Plain", {"says": "hello"}, None),
            ]
        )
    )
    told = [(verdict.stage, verdict.field) for verdict in found]
    assert told == [("b", "state"), ("c", "model"), ("f", "model"), ("d", "model")]
    assert found[2].text.endswith("Sums has no method publish(self, state); add it, or drop 'publish'")
    assert found[1] == Verdict(
        "c", "model", f"stage 'c': model '{HERE}:Dies': its process died during a trial construction (exit code 3)"
    )
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("name", "died"), [("Threads", False), ("Leaves", False), ("DiesBesideIt", True)])
def test_what_a_model_leaves_behind_is_not_waited_for_and_ends(tmp_path, name, died, last):
    file = tmp_path / "pid"
    tried = ModelCheck("a", f"{HERE}:{name}", {} if name == "Threads" else {"file": str(file)}, None)
    next_one = ModelCheck("b", f"{HERE}:Half", {}, "shared", section=("ensemble", "members", "m"))
    found = list(verdicts([next_one, tried] if last else [tried, next_one], within=PATIENT_SECONDS))
    assert sorted((each.stage, each.section) for each in found) == [
        *([("a", ())] if died else []),
        ("b", ("ensemble", "members", "m")),
    ]
    assert not died or "exit code 3" in next(each for each in found if each.stage == "a").text
    if file.exists():
        pid = int(file.read_text())
        until(lambda: gone(pid), 30)
