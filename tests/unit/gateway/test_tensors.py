"""Between the tensors of the Open Inference Protocol and values: what goes there comes back, or a documented loss."""

import contextlib
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.gateway.tensors import Tensor, inputs_of, pack_bytes, tensor_of, value_of
from spillway.lineage import reasons
from spillway.lineage.errors import WireError
from spillway.lineage.limits import DEFAULT_LIMITS, Limits
from spillway.lineage.values.json_text import read_value, show_value
from spillway.lineage.values.plain import Bfloat16
from spillway.topology.spec import InputSpec
from tests.unit.gateway.strategies import arrays, plain
from tests.unit.lineage.strategies import bfloat16s, maps, same, values

NUMBERS = ("float64", "int64", "bool")


def there_and_back(value, *, raw, declared=None):
    return value_of(tensor_of("x", value, raw=raw), declared, DEFAULT_LIMITS)


def loses(value, *, raw):
    """What the module's docstring says of a value that comes back as another."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "f" and not raw:
        value = np.where(np.isnan(value), np.array(math.nan, value.dtype), value)
    if isinstance(value, np.ndarray) and value.shape == () and value.dtype.name in NUMBERS:
        return value.item()
    if isinstance(value, bytes) and raw:
        with contextlib.suppress(UnicodeDecodeError):
            return value.decode()
    return value


@given(plain, st.booleans())
def test_a_value_comes_back_as_it_was(value, raw):
    if isinstance(value, np.ndarray) and value.dtype == np.float16 and not raw:
        return
    assert same(there_and_back(value, raw=raw), loses(value, raw=raw))


@given(st.lists(values, max_size=4) | maps | st.none(), st.booleans())
def test_structures_come_back_as_json_tells_them(value, raw):
    if not (isinstance(value, dict) and (value.keys() == {"base64"} or {"dtype", "data"} <= value.keys())):
        told = json.loads(json.dumps(show_value(value)))
        assert same(there_and_back(value, raw=raw), read_value(told))


@given(bfloat16s)
def test_bfloat16_goes_raw(value):
    assert same(there_and_back(value, raw=True), value)


@given(arrays.filter(lambda array: array.dtype != np.float16))
def test_nested_data_are_as_good_as_flat_ones(array):
    tensor = tensor_of("x", array, raw=False)
    nested = Tensor("x", tensor.datatype, tensor.shape, np.array(tensor.data, object).reshape(array.shape).tolist())
    assert same(value_of(nested, None, DEFAULT_LIMITS), loses(array, raw=False))


@pytest.mark.parametrize(
    ("tensor", "dtype", "value"),
    [
        (Tensor("x", "INT32", (1,), [5]), "int", 5),
        (Tensor("x", "UINT8", (), 5), "int", 5),
        (Tensor("x", "INT64", (), [5]), "float", 5.0),
        (Tensor("x", "FP32", (1,), [0.5]), "float", 0.5),
        (Tensor("x", "BOOL", (), [True]), "bool", True),
        (Tensor("x", "BOOL", (1,), [True]), "bool", np.array([True])),
        (Tensor("x", "FP64", (1,), [2.0]), "int", np.array([2.0])),
        (Tensor("x", "FP64", (1,), [2.0]), None, np.array([2.0])),
        (Tensor("x", "INT64", (), [2]), "int64", np.array(2)),
        (Tensor("x", "INT32", (), [2]), None, np.array(2, np.int32)),
        (Tensor("x", "UINT64", (), [2**63]), "int", np.array(2**63, np.uint64)),
        (
            Tensor("x", "FP32", (3,), ["NaN", "-Infinity", math.inf]),
            None,
            np.array([math.nan, -math.inf, math.inf], "f4"),
        ),
        (Tensor("x", "BYTES", (1,), ["hällo"]), None, "hällo"),
        (Tensor("x", "BYTES", (), "hällo"), "bytes", "hällo".encode()),
        (Tensor("x", "BYTES", (1,), pack_bytes([b"\xff"])), None, b"\xff"),
        (Tensor("x", "BYTES", (1,), pack_bytes([b"a"])), "bytes", b"a"),
        (Tensor("x", "BYTES", (1,), [b"\xff"]), None, b"\xff"),
        (Tensor("x", "BYTES", (1,), ["/w=="], {"content_type": "base64"}), None, b"\xff"),
        (Tensor("x", "BYTES", (2, 1), [["a"], ["b"]]), None, [["a"], ["b"]]),
        (Tensor("x", "BYTES", (0,), []), None, []),
        (Tensor("x", "BYTES", (1,), ['{"a": [1]}']), "dict", {"a": [1]}),
        (Tensor("x", "BYTES", (1,), ['{"a": [1]}']), None, '{"a": [1]}'),
        (Tensor("x", "BYTES", (1,), ["5"], {"content_type": "json"}), None, 5),
        (Tensor("x", "BYTES", (2,), ["a", "b"]), "list", ["a", "b"]),
    ],
)
def test_what_is_declared_decides(tensor, dtype, value):
    assert same(value_of(tensor, InputSpec(dtype=dtype), DEFAULT_LIMITS), value)


@pytest.mark.parametrize(
    ("tensor", "dtype", "text"),
    [
        (Tensor("x", "FP31", (1,), [1]), None, "there is no datatype 'FP31'; use one of BOOL, INT8"),
        (Tensor("x", ["FP32"], (1,), [1]), None, "there is no datatype"),
        (Tensor("x", "FP32", (10**4000,), [1]), None, "its shape must be"),
        (Tensor("x", "FP32", (-1,), [1]), None, "its shape must be a list of whole numbers of at least 0, not of -1"),
        (Tensor("x", "FP32", (True,), [1]), None, "not of true"),
        (Tensor("x", "FP32", (2,), [1]), None, "its data have 1 elements (shape [1]), and its shape [2] has 2"),
        (Tensor("x", "FP32", (2, 3), [[1, 2], [3, 4], [5, 6]]), None, "(shape [3, 2]), and its shape [2, 3] has 6"),
        (Tensor("x", "FP32", (3,), [[1, 2], [3]]), None, "rows differ in length"),
        (Tensor("x", "FP32", (2,), b"12345"), None, "has 5 bytes of data, and FP32 of shape [2] takes 8"),
        (Tensor("x", "BOOL", (1,), b"\2"), None, "neither 0 nor 1"),
        (Tensor("x", "FP16", (1,), [1]), None, "FP16 comes raw only"),
        (Tensor("x", "UINT8", (1,), [300]), None, "its data are not UINT8"),
        (Tensor("x", "INT8", (1,), [1.5]), None, "1.5 is not a whole number"),
        (Tensor("x", "FP32", (1,), ["1"]), None, "'1' is a text, not a number"),
        (Tensor("x", "FP32", (1,), [None]), None, "None is none of its elements"),
        (Tensor("x", "BOOL", (1,), [1]), None, "1 is none of its elements"),
        (Tensor("x", "BYTES", (1,), [5]), None, "an element of BYTES is text, not 5; put it in quotes"),
        (Tensor("x", "BYTES", (1,), pack_bytes([b"\xff"])), "str", "not UTF-8"),
        (Tensor("x", "BYTES", (1,), ["\ud800"]), "bytes", "not UTF-8"),
        (Tensor("x", "BYTES", (1,), ["?"], {"content_type": "base64"}), None, "is to be base64"),
        (Tensor("x", "BYTES", (1,), ["{"], {"content_type": "json"}), None, "not JSON"),
        (Tensor("x", "BYTES", (1,), [5], {"content_type": "json"}), None, "JSON is a text, not 5"),
        (Tensor("x", "BYTES", (2,), ["1", "2"], {"content_type": "json"}), None, "JSON is BYTES of shape [1]"),
        (Tensor("x", "BYTES", (1,), ["[" * 100_000], {"content_type": "json"}), None, "not JSON"),
        (Tensor("x", "BYTES", (2,), pack_bytes([b"a"])), None, "are not 2 elements"),
        (Tensor("x", "BYTES", (1,), pack_bytes([b"a"]) + b"!"), None, "are not 1 elements"),
        (Tensor("x", "BYTES", (1,), b"\xff\xff\xff\xff"), None, "are not 1 elements"),
    ],
)
def test_a_bad_tensor_is_refused_by_its_name_and_with_the_fix(tensor, dtype, text):
    with pytest.raises(WireError) as caught:
        value_of(tensor, InputSpec(dtype=dtype), DEFAULT_LIMITS)
    assert caught.value.reason == reasons.BAD_INPUT
    assert "'x'" in str(caught.value)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("tensor", "limit"),
    [
        (Tensor("x", "FP32", (10**18, 0), b""), "max_tensor_bytes"),
        (Tensor("x", "FP32", (10**9,), []), "max_tensor_bytes"),
        (Tensor("x", "FP32", (1,) * 17, [1]), "max_rank"),
        (Tensor("x", "FP32", (1,), [[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]), "max_rank"),
        (Tensor("x", "BYTES", (10**18,), b""), "max_values"),
        (Tensor("x", "BYTES", (10**18, 0), []), "max_values"),
        (Tensor("x", "BYTES", (1,), ["a" * 101]), "max_string_bytes"),
        (Tensor("x", "BYTES", (1,), pack_bytes([b"a" * 101])), "max_string_bytes"),
        (Tensor("x", "BYTES", (1,), [json.dumps([0] * 20_000)], {"content_type": "json"}), "max_values"),
    ],
)
def test_limits_hold_before_an_array_is_made(tensor, limit):
    with pytest.raises(WireError, match=limit) as caught:
        value_of(tensor, None, Limits(max_string_bytes=100))
    assert caught.value.reason == reasons.TOO_LARGE
    assert "'x'" in str(caught.value)


def test_an_input_is_given_once():
    with pytest.raises(WireError, match="is given twice"):
        inputs_of([Tensor("x", "INT8", (1,), [1])] * 2, {}, DEFAULT_LIMITS)


def test_what_the_protocol_or_json_lacks_is_refused():
    with pytest.raises(WireError, match="no datatype") as caught:
        tensor_of("y", np.zeros(2, np.complex64), raw=True)
    assert caught.value.reason == reasons.BAD_RESULT
    for value in (np.zeros(2, np.float16), Bfloat16(np.zeros(2, np.uint16))):
        with pytest.raises(WireError, match="binary_data") as caught:
            tensor_of("y", value, raw=False)
        assert caught.value.reason == reasons.BAD_INPUT


def test_raw_data_may_lie_at_an_odd_place_of_a_body():
    body = b"x" + np.arange(3, dtype="<f4").tobytes()
    value = value_of(Tensor("x", "FP32", (3,), memoryview(body)[1:]), None, DEFAULT_LIMITS)
    assert same(value, np.arange(3, dtype="<f4"))
    assert not value.flags.writeable
