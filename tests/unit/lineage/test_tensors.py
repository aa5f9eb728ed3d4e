import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from spillway.lineage import reasons
from spillway.lineage.limits import Limits
from spillway.lineage.message import Query
from spillway.lineage.values.codec import Decoder, encode_query
from spillway.lineage.values.tensors import DTYPES, Bfloat16, view

from .hostile_bytes import refusal


def there_and_back(array):
    return Decoder().query(encode_query(Query({"x": array}))).inputs["x"]


@pytest.mark.parametrize("name", sorted(DTYPES))
@given(data=st.data())
def test_every_dtype_comes_back_bit_by_bit(name, data):
    array = data.draw(npst.arrays(np.dtype(name), npst.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4)))
    back = there_and_back(array)
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()
    assert not back.flags.writeable


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_the_other_byte_order_is_made_ours(name):
    array = np.array([[0, 1], [1, 0]]).astype(np.dtype(name).newbyteorder(">"))
    back = there_and_back(array)
    assert back.dtype == np.dtype(name).newbyteorder("<")
    assert np.array_equal(back, array)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1),
        np.arange(24)[::-2],
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.broadcast_to(np.float32(3), (4, 5)),
        np.arange(6, dtype=">f4").reshape(2, 3).T,
        np.arange(4).view(np.recarray),
        np.zeros((0, 7), np.float32),
        np.array(5, np.uint8),
        np.arange(4, dtype=np.longlong),
    ],
    ids=lambda array: f"{array.dtype.str}{array.shape}",
)
def test_any_layout_in_memory_travels(array):
    back = there_and_back(array)
    assert back.shape == array.shape
    assert np.array_equal(back, array)


def test_a_decoded_tensor_is_a_view_on_the_message():
    message = encode_query(Query({"x": np.arange(1_000, dtype=np.float32)}))
    array = Decoder().query(message).inputs["x"]
    assert np.shares_memory(array, np.frombuffer(message, np.uint8))
    assert array.base is message
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


@pytest.mark.parametrize(
    "array",
    [
        np.array(["text"]),
        np.array([object()]),
        np.array([b"bytes"]),
        np.array(["2020-01-01"], "datetime64[s]"),
        np.array([1], "timedelta64[s]"),
        np.zeros(2, np.dtype([("a", "i4")])),
        np.zeros(2, np.longdouble),
        np.zeros(2, ">i4,>f4"),
        np.ma.masked_array([1, 2], [True, False]),
    ],
    ids=lambda array: type(array).__name__ + str(array.dtype),
)
def test_arrays_that_have_no_place_on_the_wire_are_refused(array):
    assert refusal(encode_query, Query({"x": array})) == reasons.NOT_ENCODABLE


@pytest.mark.parametrize(
    ("array", "limits"),
    [
        (np.zeros(11, np.uint8), Limits(max_tensor_bytes=10)),
        (np.broadcast_to(np.uint8(0), (2**40,)), Limits()),
        (np.zeros((0, 2**30), np.uint8), Limits()),
        (np.zeros((1, 1, 1)), Limits(max_rank=2)),
    ],
)
def test_tensors_over_the_limits_are_refused_before_they_are_copied(array, limits):
    assert refusal(encode_query, Query({"x": array}), limits) == reasons.TOO_LARGE


@given(st.binary(max_size=12), st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 4), max_size=5), st.binary())
def test_any_dtype_and_shape_is_a_view_or_one_typed_error(dtype, shape, data):
    for name in (dtype, b"int8", b"float64", b"bool", b"bfloat16"):
        reason = refusal(view, data, 0, len(data), name, shape, Limits())
        assert reason in {None, reasons.CORRUPT, reasons.TOO_LARGE, reasons.BAD_INPUT}


WITHOUT_TORCH = """
import sys
import numpy as np
import spillway.lineage.values.codec as codec, spillway.lineage.headers
from spillway.lineage.message import Query
from spillway.lineage.values.tensors import Bfloat16
bits = np.array([[0x3F80, 0xC000]], np.uint16)
message = codec.encode_query(Query({"x": Bfloat16(bits), "n": np.zeros(2), "l": [1, None]}))
decoded = codec.Decoder().query(message).inputs["x"]
assert type(decoded) is Bfloat16 and decoded.float32().tolist() == [[1.0, -2.0]]
assert np.shares_memory(decoded.bits, np.frombuffer(message, np.uint8))
try:
    codec.encode_query(Query({"x": object()}))
except codec.WireError:
    pass
assert "torch" not in sys.modules
"""


def test_a_process_without_torch_never_imports_it():
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, timeout=600, check=False
    )
    assert ran.returncode == 0, ran.stderr


@given(st.lists(st.integers(0, 2**16 - 1), max_size=8))
def test_bfloat16_becomes_the_same_number_in_float32(bits):
    floats = Bfloat16(np.array(bits, np.uint16)).float32()
    assert floats.dtype == np.float32
    assert (floats.view(np.uint32) >> 16).tolist() == bits
