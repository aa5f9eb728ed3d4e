"""Requests and answers as bodies of HTTP."""

import contextlib
import json
import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.gateway.bodies import InferRequest, read_request, selected, write_response
from spillway.agents.gateway.signature import Signature
from spillway.lineage import reasons
from spillway.lineage.errors import WireError
from spillway.lineage.limits import DEFAULT_LIMITS
from spillway.topology.spec import InputSpec
from tests.unit.gateway.strategies import parsed, plain
from tests.unit.lineage.strategies import names, same

ANY = Signature("p", {}, None, needs=False)
DECLARED = Signature("p", {"x": InputSpec(dtype="bytes")}, {"y": InputSpec()}, needs=False)


def read(told, tail=b"", signature=ANY, length=None):
    text = json.dumps(told).encode()
    return read_request(text + tail, length if length is not None or not tail else len(text), signature, DEFAULT_LIMITS)


def tensor(**other):
    return {"name": "x", "datatype": "FP32", "shape": [2], **other}


def raw(size, **other):
    return tensor(parameters={"binary_data_size": size}, **other)


def test_a_request_in_json():
    outputs = [{"name": "y", "parameters": {"binary_data": True}}, {"name": "z"}]
    told = {"id": "7", "inputs": [tensor(data=[1, "NaN"])], "outputs": outputs, "parameters": {"key": "ada"}}
    request = read(told)
    assert same(request.inputs, {"x": np.array([1, math.nan], "f4")})
    assert (request.id, request.parameters, request.outputs) == ("7", {"key": "ada"}, {"y": True, "z": False})


def test_a_request_with_binary_data():
    words = struct.pack("<I", 2) + b"hi"
    text = {"name": "t", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 6}}
    listed = {"name": "n", "datatype": "INT8", "shape": [1], "data": [3]}
    numbers = np.arange(2, dtype="<f4")
    outputs = [{"name": "y"}, {"name": "z", "parameters": {"binary_data": False}}]
    told = {"inputs": [text, listed, raw(8)], "parameters": {"binary_data_output": True}}
    request = read(told | {"outputs": outputs}, words + numbers.tobytes())
    assert same(request.inputs, {"t": "hi", "n": np.array([3], np.int8), "x": numbers})
    assert (request.parameters, request.outputs, request.raw) == ({}, {"y": True, "z": False}, True)


def test_what_the_pipeline_declares_is_gone_by():
    words = {"name": "x", "datatype": "BYTES", "shape": [1], "data": ["hi"]}
    assert read({"inputs": [words]}, signature=DECLARED).inputs == {"x": b"hi"}
    with pytest.raises(WireError, match="no output 'z'; known: y"):
        read({"inputs": [words], "outputs": [{"name": "z"}]}, signature=DECLARED)


BAD = [
    ([], "the body must be a JSON object"),
    ({}, "inputs: must be a list of objects, each with a name, not nothing"),
    ({"inputs": [5]}, "inputs[0]: must be an object with a name"),
    ({"inputs": [], "id": 5}, "id: must be a text"),
    ({"inputs": [], "id": 0}, "id: must be a text"),
    ({"inputs": [], "id": "a" * 257}, "id: must be a text"),
    ({"inputs": [], "outputs": {"y": 1}}, "outputs: must be a list of objects"),
    ({"inputs": [], "outputs": [{"name": "y", "parameters": {"binary_data": 1}}]}, "'binary_data': must be true or"),
    ({"inputs": [], "outputs": [{"name": "y", "parameters": {"classification": 3}}]}, "not supported"),
    ({"inputs": [], "parameters": []}, "the parameters of the request must be an object, not a list"),
    ({"inputs": [], "parameters": {"binary_data_output": "yes"}}, "must be true or false, not 'yes'"),
    ({"inputs": [tensor(data=[1, 2], parameters={"shared_memory_region": "r"})]}, "shared memory is not supported"),
    ({"inputs": [tensor(data=[1, 2], shape=2)]}, "tensor 'x': its shape must be a list of whole numbers, not 2"),
    ({"inputs": [tensor(data=[1, 2], shape=[[]])]}, "not of a list"),
    ({"inputs": [tensor(data=[1, 2], datatype=None)]}, "there is no datatype nothing"),
    ({"inputs": [tensor()]}, "tensor 'x': give either 'data' or the parameter 'binary_data_size'"),
    ({"inputs": [raw(8, data=[1, 2])]}, "give either 'data' or"),
    ({"inputs": [raw(8)]}, "binary_data_size is 8, and 0 bytes are left"),
    ({"inputs": [raw(-1)]}, "binary_data_size is -1"),
    ({"inputs": [raw("8")]}, "binary_data_size is '8'"),
    ({"inputs": [tensor(data=[1, 2])] * 2}, "'x': is given twice"),
]


@pytest.mark.parametrize(("told", "text"), BAD)
def test_a_bad_request_is_refused_with_place_and_fix(told, text):
    with pytest.raises(WireError) as caught:
        read(told)
    assert caught.value.reason == reasons.BAD_INPUT
    assert text in str(caught.value)


def test_json_and_binary_data_must_make_up_the_body():
    for length in (-1, 10**6):
        with pytest.raises(WireError, match="Inference-Header-Content-Length is"):
            read({"inputs": []}, length=length)
    with pytest.raises(WireError, match="1 bytes are left behind the last tensor's"):
        read({"inputs": [raw(8)]}, bytes(9))
    for body in (b"", b"{", b"\xff", b"[" * 5_000, b'{"a": ' + b"1" * 5_000 + b"}"):
        with pytest.raises(WireError, match="not JSON"):
            read_request(body, None, ANY, DEFAULT_LIMITS)


def test_a_body_of_many_lists_is_refused_before_it_is_parsed():
    body = b'{"inputs": [' + b",".join([b"[]"] * 300_000) + b"]}"
    with pytest.raises(WireError, match="300002 lists and objects") as caught:
        read_request(body, None, ANY, DEFAULT_LIMITS)
    assert caught.value.reason == reasons.TOO_LARGE


@given(parsed)
def test_a_hostile_body_is_refused_and_nothing_else(told):
    with contextlib.suppress(WireError):
        read(told)


def test_an_answer_in_json_and_one_with_binary_data():
    outputs = {"y": np.array([1, math.inf], "f4"), "z": "hi"}
    request = InferRequest({}, "7")
    body, length = write_response("p", "1", request, outputs, {"late": False})
    assert length is None
    assert json.loads(body) == {
        "model_name": "p",
        "model_version": "1",
        "id": "7",
        "parameters": {"late": False},
        "outputs": [
            {"name": "y", "datatype": "FP32", "shape": [2], "data": [1.0, "Infinity"]},
            {"name": "z", "datatype": "BYTES", "shape": [1], "data": ["hi"]},
        ],
    }
    wanted = InferRequest({}, outputs={"z": False, "y": True})
    body, length = write_response("p", "1", wanted, outputs, {}, error="it came late")
    told = json.loads(body[:length])
    assert (told["error"], "id" in told) == ("it came late", False)
    assert [each["name"] for each in told["outputs"]] == ["z", "y"]
    assert told["outputs"][1]["parameters"] == {"binary_data_size": 8}
    assert body[length:] == outputs["y"].tobytes()


@given(st.dictionaries(names, plain, max_size=4), st.booleans())
def test_an_answer_says_what_a_request_with_it_would_say(values, raw):
    if not raw:
        values = {name: each for name, each in values.items() if getattr(each, "dtype", None) != np.float16}
    body, length = write_response("p", "1", InferRequest({}, raw=raw), values, {})
    told = json.loads(body[: len(body) if length is None else length])
    again = read({"inputs": told["outputs"]}, body[length:] if length is not None else b"")
    second, _ = write_response("p", "1", InferRequest({}, raw=raw), again.inputs, {})
    assert second == body


def test_outputs_are_selected_in_the_order_of_the_request():
    outputs = {"a": 1, "b": 2}
    assert list(selected(outputs, {"b": False, "a": False})) == ["b", "a"]
    assert selected(outputs, None) == outputs
    with pytest.raises(WireError, match="the prediction has no output 'c'; known: a, b"):
        selected(outputs, {"c": False})
