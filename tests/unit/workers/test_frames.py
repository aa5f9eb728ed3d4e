"""The workers' protocol: golden frames, limits, and streams cut anywhere."""

import struct
import tracemalloc

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.workers import frames
from spillway.agents.workers.frames import FrameError, FrameReader, encode
from tests.unit.workers.golden import GOLDEN

FRONT = b"frontpid"
QUERY = {"inputs": {"x": np.arange(3, dtype="float32"), "n": 5}, "parameters": {"top": 1}, "id": "q1", "key": "k"}
RESULTS = [
    {"outputs": {"y": np.array([[1, -2]], dtype="int16"), "ok": True}},
    {"error": "ValueError: no", "raised": True, "trace": ""},
]
FIELDS = {
    "hello": {"kind": "hello", "protocol": 1, "pid": 7, "model": "models:Detect", "version": "2", "signature": None},
    "failed": {"kind": "failed", "text": "no weights"},
    "refused": {"kind": "refused", "reason": "another model"},
    "batch": {"kind": "batch", "id": [FRONT, 3], "singly": False, "queries": [QUERY]},
    "answer": {"kind": "answer", "id": [FRONT, 3], "first": 0, "seconds": 0.25, "results": RESULTS},
    **{kind: {"kind": kind} for kind in ("drain", "bye", "ping", "pong")},
}


def data_of(fields):
    return b"".join(bytes(buffer) for buffer in encode(fields))


def read(data, reader=None, step=None):
    reader = reader or FrameReader()
    for at in range(0, len(data), step or len(data)):
        view = memoryview(data[at : at + (step or len(data))])
        while view:
            room = reader.wanted()
            part = view[: len(room)]
            room[: len(part)] = part
            reader.received(len(part))
            view = view[len(part) :]
    return list(reader.frames())


def plain(value):
    """With tensors as what can be compared."""
    if isinstance(value, np.ndarray):
        return (value.dtype.name, value.shape, value.tolist())
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", FIELDS)
def test_a_frame_is_the_golden_one_and_is_read_back(kind):
    golden = bytes.fromhex(GOLDEN[kind])
    assert data_of(FIELDS[kind]).hex() == golden.hex()
    (found,) = read(golden)
    assert plain(found) == plain(FIELDS[kind])


@given(st.integers(1, 40))
def test_frames_are_found_however_a_stream_is_cut(step):
    data = bytes.fromhex("".join(GOLDEN.values()))
    assert [each["kind"] for each in read(data, step=step)] == list(GOLDEN)


def test_arrays_are_writable_and_ones_own():
    first, second = read(bytes.fromhex(GOLDEN["batch"] * 2))
    first["queries"][0]["inputs"]["x"][0] = 9.0
    assert second["queries"][0]["inputs"]["x"][0] == 0.0


@pytest.mark.parametrize("array", [np.zeros((0, 3)), np.array(3.0), np.arange(6).reshape(2, 3).T, np.array([], "bool")])
def test_tensors_of_any_shape_travel(array):
    (found,) = read(data_of({"kind": "x", "value": array}))
    assert found["value"].dtype == array.dtype
    assert found["value"].shape == array.shape
    assert np.array_equal(found["value"], array)


@pytest.mark.parametrize("value", [np.array(["text"]), np.array([None]), 1 << 70, object(), {1, 2}])
def test_what_cannot_travel_is_refused_by_name(value):
    with pytest.raises(FrameError, match="cannot be sent"):
        encode({"kind": "x", "value": value})


@pytest.mark.parametrize("shape", [(10**6, 0, 10**6), (10**6, 10**6)])
def test_a_tensor_over_the_limit_is_refused_by_its_shape_and_not_copied(shape):
    with pytest.raises(FrameError, match=rf"a tensor of shape \({shape[0]}, .* is over the limit of"):
        encode({"kind": "x", "value": np.broadcast_to(np.float32(1), shape)})


def framed(tensors, fields):
    body = b"\x92" + msgpack.packb(tensors) + msgpack.packb(fields)
    return struct.pack("<I", len(body)) + body


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (struct.pack("<I", 0), "a header of 0 bytes"),
        (struct.pack("<I", frames.HEADER_BYTES + 1), "are allowed"),
        (struct.pack("<I", 3) + b"\xc1\xc1\xc1", "cannot be read"),
        (framed([], {"kind": 7}), "'kind'"),
        (framed([], []), "'kind'"),
        (framed([["float99", [1]]], {"kind": "x"}), "no dtype"),
        (framed([["int8", [-1]]], {"kind": "x"}), "not a shape"),
        (framed([["int8", [1] * 33]], {"kind": "x"}), "not a shape"),
        (framed([["int8", [True]]], {"kind": "x"}), "not a shape"),
        (framed([["int8", [1 << 30, 2]]], {"kind": "x"}), "over the limit"),
        (framed([["int8", [1 << 30, 1 << 30, 0]]], {"kind": "x"}), "over the limit"),
        (framed([["float64", [1 << 26]]] * 3, {"kind": "x"}), "over the limit"),
        (framed({}, {"kind": "x"}), "list"),
        (framed([], {"kind": "x", "value": msgpack.ExtType(1, b"\0\0\0\0")}), "was not announced"),
        (framed([], {"kind": "x", "value": msgpack.ExtType(2, b"")}), "extension type 2"),
    ],
)
def test_what_is_no_frame_is_refused_before_anything_is_allocated(data, words):
    with pytest.raises(FrameError, match=words):
        read(data)


def count(value):
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(count, value.values()))
    return 1 + sum(map(count, value)) if isinstance(value, list) else 1


sized = st.sampled_from([0, 1, 15, 16, 31, 32, 255, 256, 65_535, 65_536])
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.binary(max_size=40)
scalars |= st.text(max_size=40) | sized.map(bytes) | sized.map(lambda size: "x" * size) | sized.map(lambda n: [1] * n)
scalars |= sized.map(lambda n: {str(key): None for key in range(n)})
scalars |= st.builds(msgpack.ExtType, st.integers(0, 127), st.sampled_from([0, 1, 2, 3, 4, 8, 16, 300]).map(bytes))
nested = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner))


@given(nested, st.integers(-2, 2))
def test_values_are_counted_as_msgpack_makes_them(value, over):
    packed, most = msgpack.packb(value), count(value) + over
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "MOST_VALUES", most)
        if over >= 0:
            frames.check_values(packed)
        elif len(packed) > most:
            with pytest.raises(FrameError, match=f"over the limit of {most}"):
                frames.check_values(packed)


@given(st.binary(max_size=300))
def test_whatever_the_bytes_the_count_ends(packed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "MOST_VALUES", 20)
        try:
            frames.check_values(packed)
        except FrameError:
            return


ITEMS = [b"\x90", b"\x80", b"\x91\x90", b"\x81\xa1a\x01", b"\xa2ab", b"\xc4\x02ab", b"\xcb" + bytes(8), b"\xdc\0\0"]


@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("around", ["results", "tensors"])
def test_a_header_of_many_small_values_takes_bounded_memory(item, around):
    times = ((15 << 20) - 100) // len(item)
    array = b"\xdd" + struct.pack(">I", times) + item * times
    fields = b"\x82\xa4kind\xa6answer\xa7results" + (array if around == "results" else b"\x90")
    header = b"\x92" + (array if around == "tensors" else b"\x90") + fields
    data = struct.pack("<I", len(header)) + header
    tracemalloc.start()
    try:
        with pytest.raises(FrameError, match="the values of a header are over the limit"):
            read(data)
        assert tracemalloc.get_traced_memory()[1] < 3 * len(data)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("depth", [100, 500, 900, 1_100, 100_000])
@pytest.mark.parametrize(
    "where", [b"\x92%s\x81\xa4kind\xa4ping", b"\x92\x91\x92%s\x90\x80", b"\x92\x90\x82\xa4kind\xa4ping\xa1x%s"]
)
def test_a_header_of_any_depth_is_a_frame_or_refused(depth, where):
    header = where % (b"\x91" * depth + b"\x01")
    try:
        read(struct.pack("<I", len(header)) + header)
    except FrameError:
        return
