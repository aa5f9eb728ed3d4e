import json

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from spillway.lineage import reasons
from spillway.lineage.errors import WireError
from spillway.lineage.limits import Limits
from spillway.lineage.message import PREDICTION, Outcome, Query, StageTiming
from spillway.lineage.values.codec import Decoder, encode_query
from spillway.lineage.values.json_text import (
    read_inputs,
    read_outcome,
    read_value,
    show_outcome,
    show_value,
    write_outcome,
)
from spillway.lineage.values.tensors import DTYPES, Bfloat16

from .hostile_bytes import refusal
from .strategies import bfloat16s, outcomes, same, tensors

WIDE = np.resize(np.array([1.5, -0.0, np.inf, -np.inf, np.nan]), 10_001)


def through_json(value):
    return read_value(json.loads(json.dumps(show_value(value), allow_nan=False)))


@given(
    tensors | bfloat16s | st.sampled_from(sorted(DTYPES)).map(lambda name: np.resize(np.arange(7).astype(name), 10_001))
)
@example(WIDE.astype(">f4").reshape(73, 137))
@example(WIDE.astype(np.complex64))
@example(np.asfortranarray(WIDE.astype(np.float16).reshape(73, 137)))
@example(Bfloat16(np.arange(65536, dtype=np.uint16)))
@example(np.array([2**64 - 1], np.uint64))
@example(np.zeros((2, 0, 3), np.complex128))
def test_a_tensor_comes_back_equal_from_json(tensor):
    array = tensor.bits if isinstance(tensor, Bfloat16) else tensor
    again, shown = through_json(tensor), show_value(tensor)
    if isinstance(tensor, np.ndarray) and tensor.dtype.kind in "fc":  # the bits of a NaN are not told
        assert again.dtype == tensor.dtype.newbyteorder("<")
        assert np.array_equal(again, tensor, equal_nan=True)
        assert np.array_equal(np.signbit(again.real), np.signbit(tensor.real) & ~np.isnan(tensor.real))
    else:
        assert same(tensor, again)
    assert ("base64" in shown) == (array.size > 10_000)
    assert ("data" in shown) == (array.size <= 10_000)


numbers = st.booleans() | st.integers(-(2**70), 2**70) | st.integers(-300, 300) | st.floats() | st.text(max_size=3)
numbers |= st.sampled_from(["NaN", "Infinity", "-Infinity", "1", "nan", 1.0, 1.7, 65_520, 1e39, 2, -1, None, [1], {}])


def held(dtype, number):
    """Whether a tensor of this dtype can hold what a JSON value says."""
    if dtype.kind == "b":
        return type(number) is bool
    if dtype.kind in "iu":
        whole = type(number) is int or (type(number) is float and number.is_integer())
        return whole and np.iinfo(dtype).min <= int(number) <= np.iinfo(dtype).max
    if type(number) is str:
        return number in {"NaN", "Infinity", "-Infinity"}
    with np.errstate(over="ignore"):
        return type(number) in {int, float} and (not np.isfinite(number) or np.isfinite(dtype.type(number)))


@given(st.sampled_from([name for name in DTYPES if "complex" not in name]), st.lists(numbers, max_size=4))
@example("int32", [1.7])
@example("int8", [float("nan")])
@example("bool", [2])
@example("float32", [1e39])
@example("float16", ["1"])
def test_a_tensor_holds_what_was_said_or_is_refused(name, said):
    assume(not said or not all(type(number) is list for number in said))  # that is a tensor of more dimensions
    dtype, value = DTYPES[name], {"x": {"dtype": name, "data": said}}
    if all(held(dtype, number) for number in said):
        read = read_value(value)["x"]
        assert read.dtype == dtype
        assert np.array_equal(
            read, np.array([dtype.type(float(n) if type(n) is str else n) for n in said], dtype), True
        )
        return
    with pytest.raises(WireError, match=f"inputs.x: not a tensor of {name}") as caught:
        read_value(value)
    assert caught.value.reason == reasons.BAD_INPUT


pieces = st.recursive(
    numbers,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["dtype", "shape", "data", "base64", "x"]), inner, max_size=4)
        | st.fixed_dictionaries(
            {"dtype": st.sampled_from([*DTYPES, "bfloat16", ""]), "shape": st.lists(inner, max_size=3)},
            optional={"data": inner, "base64": st.sampled_from(["", "AAAAAAAA", "AQID", 1])},
        )
    ),
)


@given(st.dictionaries(st.text(max_size=3), pieces, max_size=4))
@example({"x": {"dtype": "int8", "data": [], "shape": [0, 2**62, 2**62]}})
@example({"x": {"dtype": "bool", "base64": "Ag==", "shape": [1]}})
@example({"x": {"dtype": "complex64", "data": [[1, 2, 3]]}})
@example({"\ud800": "\ud800"})
def test_whatever_the_json_it_is_a_query_or_refused(value):
    text = json.dumps(value).encode()
    refusal(Decoder().json_query, text)
    refusal(Decoder().released, text)


@pytest.mark.parametrize("depth", [17, 100, 330, 600, 900, 5_000])
@pytest.mark.parametrize("ends", [("[", "]"), ('{"a": ', "}")])
@pytest.mark.parametrize(
    "around",
    [
        '{"x": %s}',
        '{"x": [0, {"y": %s}]}',
        '{"x": {"dtype": "int8", "data": %s}}',
        '{"x": {"dtype": "int8", "data": [1, %s]}}',
        '{"x": {"dtype": "int8", "shape": %s, "data": [1]}}',
        '{"x": {"dtype": "int8", "shape": [1], "base64": %s}}',
        '{"x": {"dtype": %s, "data": [1]}}',
        '{"x": {"base64": %s}}',
    ],
)
def test_json_of_any_depth_is_refused(around, ends, depth):
    text = (around % (ends[0] * depth + "1" + ends[1] * depth)).encode()
    outcome = b'{"timings": [], "kind": "prediction", "flags": {}, "outputs": ' + text + b"}"
    for read, message in ((Decoder().json_query, text), (Decoder().released, outcome)):
        assert refusal(read, message) in {reasons.TOO_LARGE, reasons.CORRUPT, reasons.BAD_INPUT}
    refusal(read_inputs, text)  # of a file here, which is held to the pipeline's limits when it is sent


def test_json_is_as_deep_and_as_large_as_avro_may_be():
    limits = Limits(max_depth=2, max_values=4)
    Decoder(limits).json_query(b'{"x": [[1, 2]]}')
    wide = b'{"x": %s}' % json.dumps([[[0]] * 150] * 120).encode()
    assert np.shape(Decoder(Limits(max_values=200_000)).json_query(wide).inputs["x"]) == (120, 150, 1)
    assert np.shape(read_inputs(wide)["x"]) == (120, 150, 1)
    for text, limit in ((b'{"x": [[[1]]]}', "max_depth"), (b'{"x": [1, 2, 3, 4, 5]}', "max_values")):
        with pytest.raises(WireError, match=limit):
            Decoder(limits).json_query(text)


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
        "arrived_us": 0,
    }  # fmt: skip


@given(outcomes)
def test_an_outcome_is_written_as_it_is_shown(outcome):
    assert json.loads(write_outcome(outcome, "q", 0.5)) == json.loads(json.dumps(show_outcome(outcome, "q", 0.5)))


def test_no_more_of_an_outcome_is_written_than_may_be():
    tensors = {str(number): np.zeros(10_000) for number in range(100)}
    with pytest.raises(WireError, match="over the limit of 200000") as caught:
        write_outcome(Outcome(PREDICTION, tensors), "q", 0.5, 200_000)
    assert caught.value.reason == reasons.TOO_LARGE


def test_an_outcome_comes_back_from_json():
    timing = StageTiming("a", 0.001, 0.002, 0.003, 4, "m", "1", 1_800_000_000_000_000)
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
