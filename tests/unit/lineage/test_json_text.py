import json

import numpy as np
import pytest

from lineage.errors import WireError
from lineage.limits import Limits
from lineage.message import PREDICTION, Outcome, Query, StageTiming
from lineage.values.codec import Decoder, encode_query
from lineage.values.json_text import read_inputs, read_outcome, read_value, show_outcome, show_value, write_outcome
from lineage.values.tensors import Bfloat16


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.array([True, False]),
        np.array(7, dtype=np.int64),
        np.zeros((0, 3), dtype=np.uint8),
    ],
)
def test_a_tensor_survives_json(array):
    again = read_value(json.loads(json.dumps(show_value(array))))
    assert (again.dtype, again.shape) == (array.dtype, array.shape)
    assert np.array_equal(again, array)


def test_a_bfloat16_tensor_is_rounded_to_the_nearest():
    tensor = read_value({"dtype": "bfloat16", "shape": [3], "data": [1.0, -2.5, 1.0039]})
    assert isinstance(tensor, Bfloat16)
    assert show_value(tensor) == {"dtype": "bfloat16", "shape": [3], "data": [1.0, -2.5, 1.0]}


def test_flat_data_take_the_shape():
    assert read_value({"dtype": "int64", "shape": [2, 2], "data": [1, 2, 3, 4]}).tolist() == [[1, 2], [3, 4]]


def test_what_is_no_tensor_stays_what_it_is():
    value = {"a": [1, "two", None, True, {"b": 1.5}], "data": [1], "dtype": "int8", "unit": "m"}
    assert read_value(value) == value


def test_bytes_are_base64():
    assert read_value({"base64": "AP8="}) == b"\x00\xff"
    assert show_value([b"\x00\xff"]) == [{"base64": "AP8="}]


def test_numbers_that_json_lacks_are_told_and_come_back_in_tensors():
    tensor = np.array([1.0, np.inf, -np.inf, np.nan], dtype=np.float32)
    shown = show_value({"x": float("nan"), "t": tensor})
    assert shown["x"] == "NaN"
    assert shown["t"]["data"] == [1.0, "Infinity", "-Infinity", "NaN"]
    again = read_value(json.loads(json.dumps(shown, allow_nan=False)))
    assert np.array_equal(again["t"], tensor, equal_nan=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"x": 1', "not JSON: Expecting ',' delimiter at line 1, column 8"),
        ("[1]", "a JSON object of named inputs is needed, not list"),
        (b"\xff", "not JSON that can be read"),
        ('{"x": ' + "[" * 100_000, "not JSON that can be read"),
        ('{"x": ' + "1" * 5_000 + "}", "not JSON that can be read"),
        ('{"x": {"base64": "?"}}', "x: not base64"),
    ],
)
def test_inputs_that_cannot_be_read_are_refused_with_the_place(text, message):
    with pytest.raises(WireError, match=message):
        read_inputs(text)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"x": {"dtype": "float33", "data": [1]}}, r"inputs\.x: there is no dtype 'float33'"),
        ({"x": {"dtype": ["int8"], "data": [1]}}, r"inputs\.x: there is no dtype"),
        ({"x": [0, {"dtype": "int8", "shape": [3], "data": [1]}]}, r"inputs\.x\[1\]: not a tensor of int8"),
        ({"x": {"dtype": "int8", "data": [[1], [1, 2]]}}, r"inputs\.x: not a tensor of int8"),
        ({"x": {"dtype": "int8", "data": [300]}}, r"inputs\.x: not a tensor of int8"),
        ({"x": {"base64": "?"}}, r"inputs\.x: not base64"),
        ({"x": {"base64": 5}}, r"inputs\.x: not base64"),
    ],
)
def test_what_cannot_be_read_is_named_by_its_place(value, message):
    with pytest.raises(WireError, match=message):
        read_value(value)


def test_an_outcome_is_shown_whole():
    timing = StageTiming("a", 0.001, 0.002, 0.0345678, 4, "m:C", "2")
    outcome = Outcome(PREDICTION, {"y": np.float32(1.5) * np.ones(1, np.float32)}, stage="a", timings=[timing])
    shown = show_outcome(outcome, "id", 0.0504)
    assert json.loads(json.dumps(shown)) == shown
    assert (shown["request_id"], shown["kind"], shown["latency_ms"]) == ("id", "prediction", 50.4)
    assert shown["timings"][0] == {
        "stage": "a", "queue_ms": 1.0, "wait_ms": 2.0, "exec_ms": 34.568, "batch": 4, "model": "m:C", "version": "2",
    }  # fmt: skip


def test_an_outcome_comes_back_from_json():
    timing = StageTiming("a", 0.001, 0.002, 0.003, 4, "m", "1")
    outcome = Outcome(PREDICTION, {"x": [1, "two"], "b": b"\xff"}, "r", "t", "a", [timing], {"late": True})
    assert read_outcome(write_outcome(outcome, "q1", 0.5)) == outcome


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"timings": 1}', b'{"timings": [{}]}', b"[" * 100_000])
def test_what_is_no_outcome_in_json_is_refused(text):
    with pytest.raises(WireError, match="not an outcome in JSON"):
        read_outcome(text)


def test_what_is_over_a_limit_is_named_with_the_limit():
    with pytest.raises(WireError, match=r"'a': 'b': a string of 40 characters is over .* of 16 \(limits: max_string_b"):
        encode_query(Query({"a": {"b": "x" * 40}}), Limits(max_string_bytes=16))
    with pytest.raises(WireError, match=r"'a': 'b': a text of 40 bytes is over .* of 16 \(limits: max_string_bytes\)"):
        Decoder(Limits(max_string_bytes=16)).query(encode_query(Query({"a": {"b": "x" * 40}})))
