"""Parameters that Spillway goes by, and those of an answer."""

import json
import math

import pytest

from spillway.agents.gateway.parameters import Ask, answer_parameters, ask_of
from spillway.lineage import reasons
from spillway.lineage.errors import WireError
from spillway.lineage.message import DROPPED, PREDICTION, Outcome, StageTiming
from spillway.lineage.tokens import Token


def test_what_is_asked_of_spillway_is_parted_from_the_querys_own():
    parameters = {"timeout": 250_000, "key": "ada", "after": "taste/0/5/17", "priority": "offline", "beams": 4}
    assert ask_of(parameters) == Ask(0.25, "ada", Token("taste", 0, 5, 17), "offline", {"beams": 4})
    assert ask_of({}) == ask_of({"timeout": 0, "priority": 0}) == Ask(None, None, None, None, {})
    assert ask_of({"image": {"base64": "YQ=="}}).own == {"image": b"a"}


def test_needs_of_variants_stay_with_the_query_and_give_its_deadline():
    asked = {"latency": "50ms", "accuracy": "95%"}
    assert ask_of(asked, needs=True) == Ask(0.05, None, None, None, asked)
    assert ask_of({**asked, "timeout": 80_000}, needs=True).deadline == 0.08
    assert ask_of({"latency": "whatever"}).own == {"latency": "whatever"}
    with pytest.raises(WireError, match="a query names a model or a variant, not both"):
        ask_of({"model": "a", "variant": "b"}, needs=True)
    with pytest.raises(WireError, match="latency: must be a finite duration, not 1000"):
        ask_of({"latency": 10**400}, needs=True)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"timeout": -1}, "'timeout': must be a whole number of microseconds, not -1"),
        ({"timeout": 10**400}, "'timeout': must be a whole number of microseconds, not 1000"),
        ({"timeout": True}, "not true"),
        ({"timeout": "1s"}, "not '1s'"),
        ({"timeout": None}, "not nothing"),
        ({"timeout": math.nan}, "not nan"),
        ({"key": 5}, "'key': must be a text, not 5; put it in quotes"),
        ({"key": ""}, "'key': must be a text"),
        ({"priority": 3}, "'priority': must be 'offline', or left out, not 3"),
        ({"priority": []}, "not a list"),
        ({"priority": False}, "not false"),
        ({"after": "now"}, "a token looks like taste/0/5/17"),
        ({"after": []}, "a token looks like"),
        ({"x": {"base64": "?"}}, "parameter 'x': not base64"),
    ],
)
def test_a_bad_parameter_is_named(parameters, text):
    with pytest.raises(WireError) as caught:
        ask_of(parameters)
    assert caught.value.reason == reasons.BAD_INPUT
    assert text in str(caught.value)


def test_an_answer_tells_what_became_of_the_query():
    timing = StageTiming("a", 0.001, 0.0, 0.02, 4, "m", "7")
    outcome = Outcome(PREDICTION, {"y": 1}, timings=[timing], flags={"a": {"confidence": math.nan}}, latency=0.0253)
    told = answer_parameters(outcome, "r-1")
    assert json.loads(told.pop("flags")) == {"a": {"confidence": "NaN"}}
    (one,) = json.loads(told.pop("timings"))
    assert (one["stage"], one["exec_ms"], one["batch"]) == ("a", 20.0, 4)
    assert told == {"request_id": "r-1", "kind": "prediction", "latency_ms": 25.3, "late": False}


def test_an_answer_tells_why_there_is_no_prediction():
    outcome = Outcome(DROPPED, reason=reasons.TOO_LATE, text="no", stage="b", latency=0.5, late=True)
    assert answer_parameters(outcome, "r") == {
        "request_id": "r",
        "kind": "dropped",
        "reason": "too-late",
        "stage": "b",
        "latency_ms": 500.0,
        "late": True,
    }
