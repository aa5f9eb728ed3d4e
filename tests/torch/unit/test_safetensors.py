"""Export and import: what the format's specification says, read by hand; hostile files give one typed error."""

import contextlib
import json
import struct

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spillway.checkpoint import state_files
from spillway.checkpoint.safetensors import DTYPES
from spillway.lineage.errors import CheckpointError
from tests.unit.checkpoint.states import same


def file_of(state, metadata=None):
    return b"".join(state_files.written(state, None, metadata))


def load(data):
    state, keyed, metadata = state_files.read(data)
    assert keyed is None
    return state, metadata


def by_the_specification(data):
    """Header and tensors of a file, as huggingface/safetensors describes the format."""
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    body = data[8 + size :]
    metadata = header.pop("__metadata__")
    assert all(isinstance(text, str) for text in metadata.values())
    assert data[8:9] == b"{"
    return metadata, {
        name: (said["dtype"], said["shape"], body[slice(*said["data_offsets"])]) for name, said in header.items()
    }


def test_the_file_is_as_the_specification_says():
    state = {
        "w": torch.tensor([[1.0, 2.0]]),
        "deep": {"b": torch.tensor([1.5, -2.0], dtype=torch.bfloat16)},
        "n": np.arange(3, dtype=np.uint16),
        "none": np.zeros((0, 4)),
        "one": np.array(True),
        "lr": 0.1,
    }
    metadata, tensors = by_the_specification(file_of(state))
    assert tensors == {
        "w": ("F32", [1, 2], struct.pack("<2f", 1, 2)),
        "deep/b": ("BF16", [2], b"\xc0\x3f\x00\xc0"),
        "n": ("U16", [3], struct.pack("<3H", 0, 1, 2)),
        "none": ("F64", [0, 4], b""),
        "one": ("BOOL", [], b"\x01"),
    }
    assert json.loads(metadata["spillway.values"]) == {"lr": {"float": (0.1).hex()}}


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_every_dtype_of_the_format_travels(dtype):
    tensor = torch.ones(2, dtype=getattr(torch, dtype)) if hasattr(torch, dtype) else np.ones(2, dtype)
    data = file_of({"x": tensor})
    assert by_the_specification(data)[1]["x"][0] == DTYPES[dtype]
    assert same(load(data)[0]["x"], tensor)


def written(header, body=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def test_a_file_of_another_tool_is_a_state_of_torch_tensors():
    header = {"a.weight": {"dtype": "F32", "shape": [1], "data_offsets": [2, 6]}}
    header |= {"x/[0]": {"dtype": "I8", "shape": [2], "data_offsets": [0, 2]}}
    restored, metadata = load(written(header | {"__metadata__": {"format": "pt"}}, b"\x01\x02" + struct.pack("<f", 3)))
    assert same(restored, {"a.weight": torch.tensor([3.0]), "x": {"[0]": torch.tensor([1, 2], dtype=torch.int8)}})
    assert metadata == {"format": "pt"}


GOOD = {"dtype": "I8", "shape": [2], "data_offsets": [0, 2]}
HOSTILE = {
    "nothing": b"",
    "a header that goes past the end": struct.pack("<Q", 2**40) + b"{}",
    "a header over the limit": struct.pack("<Q", 2**63) + b"{}",
    "no JSON": written(b"{"),
    "no UTF-8": written(b"\xff\xff"),
    "brackets": written(b"[" * 100_000),
    "a list": written([]),
    "a tensor that is none": written({"a": 3}),
    "no dtype": written({"a": {"shape": [2], "data_offsets": [0, 2]}}, b"ab"),
    "an unknown dtype": written({"a": GOOD | {"dtype": "F4"}}, b"ab"),
    "a list for a dtype": written({"a": GOOD | {"dtype": []}}, b"ab"),
    "a negative dimension": written({"a": GOOD | {"shape": [-1, -2]}}, b"ab"),
    "a dimension that is no number": written({"a": GOOD | {"shape": ["2"]}}, b"ab"),
    "a dimension that is a boolean": written({"a": GOOD | {"shape": [2, True]}}, b"ab"),
    "a huge shape": written({"a": GOOD | {"shape": [2**40, 2**40]}}, b"ab"),
    "a huge shape of nothing": written({"a": GOOD | {"shape": [2**40, 0, 2**40], "data_offsets": [0, 0]}}),
    "a rank of 99": written({"a": GOOD | {"shape": [1] * 98 + [2]}}, b"ab"),
    "offsets past the end": written({"a": GOOD}, b"a"),
    "offsets that go back": written({"a": GOOD | {"data_offsets": [2, 0]}}, b"ab"),
    "too many bytes": written({"a": GOOD | {"data_offsets": [0, 3]}}, b"abc"),
    "tensors that overlap": written({"a": GOOD, "b": GOOD}, b"ab"),
    "bytes between": written({"a": GOOD, "b": GOOD | {"data_offsets": [3, 5]}}, b"abcde"),
    "bytes behind": written({"a": GOOD}, b"abc"),
    "metadata that are no texts": written({"__metadata__": {"a": 1}}),
    "entries that are no list": written({"__metadata__": {"spillway.entries": "7"}}),
    "entries of other tensors": written({"__metadata__": {"spillway.entries": '[["b", "torch"]]'}, "a": GOOD}, b"ab"),
    "values that are none": written({"__metadata__": {"spillway.entries": "[]", "spillway.values": '{"v": {}}'}}),
    "a value of no entry": written({"__metadata__": {"spillway.entries": "[]", "spillway.values": '{"v": 1}'}}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_give_one_typed_error(name):
    with pytest.raises(CheckpointError) as error:
        load(HOSTILE[name])
    assert len(str(error.value)) < 400


@given(st.integers(0, 200), st.binary(min_size=1, max_size=4))
def test_damaged_files_give_a_state_or_one_typed_error(at, bytes_):
    data = bytearray(file_of({"w": torch.ones(3), "n": {"lr": [0.5, (1,)]}}))
    data[at : at + len(bytes_)] = bytes_
    with contextlib.suppress(CheckpointError):  # most damage is refused, some is not seen: there is no checksum
        load(bytes(data))
