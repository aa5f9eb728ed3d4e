"""The description of a gateway, by a validator of OpenAPI and of JSON schemas."""

import json

import numpy as np
import pytest

from spillway.agents.gateway import plain, statuses
from spillway.agents.gateway.openapi import document, value_schema
from spillway.agents.gateway.signature import Signature
from spillway.lineage.values.json_text import show_value
from spillway.topology.spec import InputSpec

validator = pytest.importorskip("openapi_spec_validator", reason="make env installs it")

INPUTS = {"x": InputSpec(dtype="float32", shape=(2, None)), "name": InputSpec(dtype="str"), "more": InputSpec()}
SIGNATURE = Signature("plates.v1", INPUTS, {"y": InputSpec(dtype="int")}, needs=False)
DOCUMENT = document([SIGNATURE, Signature("other", {}, None, needs=True)], "1")


def fits(schema, value):
    from jsonschema import Draft202012Validator

    whole = {**schema, "components": DOCUMENT["components"]}
    return Draft202012Validator(whole).is_valid(json.loads(json.dumps(value)))


def test_the_document_is_valid():
    validator.validate(json.loads(json.dumps(DOCUMENT)), cls=validator.OpenAPIV31SpecValidator)


def test_it_has_the_paths_of_every_pipeline():
    assert {"/v2", "/v2/health/live", "/v2/health/ready"} < DOCUMENT["paths"].keys()
    for pipeline in ("plates.v1", "other"):
        for under in ("", "/versions/{version}"):
            root = f"/v2/models/{pipeline}{under}"
            assert {root, f"{root}/ready", f"{root}/infer"} < DOCUMENT["paths"].keys()
        assert f"/v1/pipelines/{pipeline}/predict" in DOCUMENT["paths"]
        assert f"/v1/pipelines/{pipeline}/feedback" in DOCUMENT["paths"]


def test_it_has_every_status_that_there_is():
    responses = DOCUMENT["paths"]["/v1/pipelines/other/predict"]["post"]["responses"]
    assert responses.keys() == {str(one.http) for one in vars(statuses).values() if isinstance(one, statuses.Status)}


def test_a_query_is_held_to_what_its_pipeline_declares():
    content = DOCUMENT["paths"]["/v1/pipelines/plates.v1/predict"]["post"]["requestBody"]["content"]
    schema = content["application/json"]["schema"]
    inputs = {"x": [[1, 2, "NaN"], [3, 4, 5]], "name": "ada", "more": {"a": None}, "beyond": 1}
    assert fits(schema, {"inputs": inputs, "timeout_ms": 50, "parameters": {"a": 1}})
    assert fits(schema, {"queries": [{"inputs": inputs}]})
    assert fits(schema, {"inputs": inputs, "priority": "offline", "id": "mine"})
    (described,) = (each["properties"].keys() for each in schema["oneOf"] if "inputs" in each["properties"])
    assert described == plain._OF_A_QUERY
    assert not fits(schema, {"inputs": {**inputs, "x": [[1, 2, 3]]}})
    assert not fits(schema, {"inputs": {**inputs, "name": 5}})
    assert not fits(schema, {"inputs": {"x": inputs["x"]}})
    assert not fits(schema, {"queries": []})


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (InputSpec(dtype="int8", shape=(2,)), np.zeros(2, np.int8)),
        (InputSpec(dtype="float64"), np.zeros((20_000, 1))),
        (InputSpec(dtype="complex64", shape=(1,)), np.zeros(1, np.complex64)),
        (InputSpec(dtype="float32", shape=()), np.float32(1) * np.ones((), np.float32)),
        (InputSpec(shape=(2,)), np.zeros(2)),
        (InputSpec(dtype="bytes"), b"a"),
        (InputSpec(dtype="bool"), True),
        (InputSpec(dtype="bool", shape=(1,)), np.array([True])),
        (InputSpec(dtype="float"), float("nan")),
        (InputSpec(dtype="list"), [1, "a"]),
        (InputSpec(dtype="dict"), {"a": None}),
    ],
)
def test_values_as_they_are_shown_fit_their_schema(declared, value):
    shown = show_value(np.asarray(value) if isinstance(value, np.generic) else value)
    assert fits(value_schema(declared), shown)
    assert not fits(value_schema(declared), None)
