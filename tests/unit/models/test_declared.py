"""A model against what its stage declares of its state; and models tried in a process of their own."""

from __future__ import annotations

import pytest

from agents.models.declared import UndeclaredError, load_declared, try_model
from agents.models.trial import Trial, Verdict, verdicts
from lineage.errors import ModelError
from tests.unit.models import stateful_models

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
            "it has those of a stateful model, and the stage declares no state: add 'state: shared'",
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
    ],
)
def test_a_model_that_is_at_fault(name, declared, message):
    with pytest.raises(ModelError, match=message) as caught:
        try_model("s", name, {}, declared)
    assert not isinstance(caught.value, UndeclaredError)


def test_models_are_tried_in_a_process_of_their_own(capfd):
    found = list(
        verdicts(
            [
                Trial("a", f"{THERE}:Total", {}, "shared"),
                Trial("b", f"{THERE}:Total", {}, "keyed"),
                Trial("c", f"{HERE}:Dies", {}, "shared"),
                Trial("d", f"{HERE}:Half", {}, "shared"),
                Trial("e", f"{HERE}:Plain", {"says": "hello"}, None),
            ]
        )
    )
    assert [(verdict.stage, verdict.field) for verdict in found] == [("b", "state"), ("c", "model"), ("d", "model")]
    assert found[1] == Verdict(
        "c", "model", f"stage 'c': model '{HERE}:Dies': its process died while it was tried (exit code 3)"
    )
    assert capfd.readouterr().out == ""
