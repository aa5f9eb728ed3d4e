import json

import numpy as np
import pytest

from agents.cli.json_values import read_value, show_outcome, show_value
from lineage.errors import UsageError
from lineage.message import PREDICTION, Outcome, StageTiming
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


def test_numbers_that_json_lacks_are_null():
    shown = show_value({"x": float("nan"), "t": np.array([1.0, np.inf])})
    assert shown["x"] is None
    assert shown["t"]["data"] == [1.0, None]
    json.dumps(shown, allow_nan=False)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"x": {"dtype": "float33", "data": [1]}}, r"inputs\.x: no dtype 'float33'"),
        ({"x": {"dtype": ["int8"], "data": [1]}}, r"inputs\.x: no dtype"),
        ({"x": [0, {"dtype": "int8", "shape": [3], "data": [1]}]}, r"inputs\.x\[1\]: no int8 tensor"),
        ({"x": {"dtype": "int8", "data": [[1], [1, 2]]}}, r"inputs\.x: no int8 tensor"),
        ({"x": {"dtype": "int8", "data": [300]}}, r"inputs\.x: no int8 tensor"),
        ({"x": {"base64": "?"}}, r"inputs\.x: not base64"),
        ({"x": {"base64": 5}}, r"inputs\.x: not base64"),
    ],
)
def test_what_cannot_be_read_is_named_by_its_place(value, message):
    with pytest.raises(UsageError, match=message):
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
