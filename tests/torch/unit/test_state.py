"""States: leaves and back without loss; what cannot be kept is named with its fix."""

import collections
import enum
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given

from spillway.checkpoint import names
from spillway.checkpoint.state import StateError, digest, flatten, of_key, unflatten
from spillway.lineage.errors import CheckpointError
from spillway.lineage.replication import Entry
from spillway.lineage.values.tensors import Bfloat16
from tests.unit.checkpoint.states import same

from .states import keys, states


def back(state):
    flat = flatten(state)
    return unflatten(flat.entries, [np.array(tensor) for tensor in flat.tensors], flat.values)


@given(states)
def test_a_state_is_its_leaves(state):
    assert same(back(state), state)


@given(keys)
def test_a_key_never_looks_like_anything_else(key):
    part = names.of_key(key)
    assert names.places(f"{part}/{names.of_item(list, 3)}/{names.of_key(-4)}/{names.of_item(tuple, 0)}") == [
        (dict, key),
        (list, 3),
        (dict, -4),
        (tuple, 0),
    ]


def test_an_optimizers_state_comes_back_as_it_loads_it():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, betas=(0.8, 0.9))
    model(torch.ones(5, 3)).sum().backward()
    optimizer.step()
    state = {"model": dict(model.state_dict()), "optimizer": optimizer.state_dict()}
    restored = back(state)
    assert same(restored, state)
    torch.optim.Adam(model.parameters()).load_state_dict(restored["optimizer"])
    assert [entry.name for entry in flatten(state).entries][4] == "optimizer/state/#0/step"


def test_the_state_of_a_random_generator_is_small_values():
    random = np.random.default_rng(7)
    restored = np.random.default_rng(0)
    restored.bit_generator.state = back({"random": random.bit_generator.state})["random"]
    assert restored.random() == random.random()


def test_numbers_of_numpy_stay_what_they_are():
    restored = back({"rate": np.float32(0.1), "list": [np.int8(3)]})
    assert type(restored["rate"]) is np.float32
    assert restored["rate"] == np.float32(0.1)
    assert type(restored["list"][0]) is np.int8


def test_what_speaks_dlpack_is_an_array():
    class Foreign:
        def __init__(self):
            self.array = np.arange(3.0)

        def __dlpack__(self, **kwargs):
            return self.array.__dlpack__(**kwargs)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    assert back({"x": Foreign()})["x"].tolist() == [0.0, 1.0, 2.0]


def test_byte_orders_become_little_endian():
    assert back({"x": np.arange(3, dtype=">i4")})["x"].dtype == np.dtype("<i4")


class Colour(enum.Enum):
    RED = 1


Pair = collections.namedtuple("Pair", "a b")  # noqa: PYI024  as models have them
REFUSED = {
    "no mapping": ([1, 2], "mapping"),
    "an object": ({"a": {"b": object()}}, "'a'"),
    "an enumeration": ({"c": Colour.RED}, "'c'"),
    "an array of objects": ({"a": np.array([None])}, "'a'"),
    "an array of texts": ({"a": np.array(["x"])}, "use one of bool"),
    "an array of dates": ({"a": {"when": np.array(["2020-01-01"], "M8[D]")}}, "'a/when'"),
    "a masked array": ({"a": np.ma.array([1], mask=[True])}, "fill it"),
    "a named tuple": ({"p": Pair(1, 2)}, "use a mapping"),
    "a named tuple of tensors": ({"p": Pair(torch.zeros(1), 2)}, "use a mapping"),
    "a large value": ({"text": "x" * 70_000}, "keep it as a tensor"),
    "many values": ({"a": torch.zeros(1), "v": {str(i): [i] * 10 for i in range(1_000)}}, "'v'"),
    "a key that is neither": ({"a": {1.5: torch.zeros(1)}}, "1.5"),
    "half a character": ({"a": "\ud800"}, "'a'"),
    "a sparse tensor": ({"s": torch.eye(3).to_sparse()}, "'s'"),
    "a tensor without memory": ({"m": torch.zeros(3, device="meta")}, "'m'"),
    "a long name": ({"n" * 2_000: torch.zeros(1)}, "shorter keys"),
    "a set": ({"s": {1, 2}}, "a builtins.set cannot be encoded"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_kept_is_named_with_its_fix(name):
    state, told = REFUSED[name]
    with pytest.raises(StateError) as error:
        flatten(state)
    assert told in str(error.value)
    assert len(str(error.value)) < 600


def test_what_contains_itself_is_refused():
    loop = {}
    loop["again"] = loop
    for state in (loop, {"a": torch.zeros(1), "b": [loop]}, {"a": {"t": torch.zeros(1), "l": loop}}):
        with pytest.raises(StateError, match="nested"):
            flatten(state)


def test_a_keyed_state_names_the_key():
    with pytest.raises(StateError, match="the state of key 'bob', entry 'x'"):
        flatten({"x": object()}, of_key("bob"))
    with pytest.raises(StateError, match="cannot be a key of a state"):
        of_key(7)


@given(states)
def test_the_digest_knows_every_bit(state):
    flat = flatten(state)
    arrays = [np.array(tensor, order="C") for tensor in flat.tensors]
    assert digest(unflatten(flat.entries, arrays, flat.values)) == digest(state)
    for array in arrays:
        if array.size and array.dtype != bool:
            array.reshape(-1).view(np.uint8)[-1] ^= 1
            assert digest(unflatten(flat.entries, arrays, flat.values)) != digest(state)
            return


@pytest.mark.parametrize("name", ["a/[1]", "[x]", "a/#", "(0", "#1.5", "a/[0]/b"])
def test_names_that_no_state_gives_are_refused(name):
    with pytest.raises(CheckpointError):
        names.nested([("a", 1), (name, 2)] if name != "a/[1]" else [(name, 2)])


def test_torch_is_neither_needed_nor_imported():
    script = """
import sys
import numpy as np
from spillway.checkpoint.assembly import Assembler
from spillway.checkpoint.capture import Capture
from spillway.checkpoint.state import flatten, unflatten
from spillway.lineage.replication import Entry
taken = Capture().take({"x": np.zeros(3)})
entry = Entry("b", "torch", "bfloat16", (2,))
state = unflatten([entry, Entry("f", "torch", "float32", (1,))], [np.array([0x3F80, 0], "<u2"), np.ones(1, "<f4")], {})
assert state["b"].float32().tolist() == [1.0, 0.0] and state["f"].tolist() == [1.0]
assert flatten(state).entries[0] == Entry("b", "numpy", "bfloat16", (2,))
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_bits_of_bfloat16_are_bfloat16():
    flat = flatten({"b": Bfloat16(np.array([1, 2], np.uint16)), "t": torch.ones(2, dtype=torch.bfloat16)})
    assert flat.entries == (Entry("b", "numpy", "bfloat16", (2,)), Entry("t", "torch", "bfloat16", (2,)))


def test_a_torch_tensor_is_refused_where_torch_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert unflatten([Entry("n", "numpy", "float32", (1,))], [np.ones(1, "<f4")], {})["n"].tolist() == [1]
    with pytest.raises(CheckpointError, match=r"'w' is a torch tensor: torch is not installed.*'spillway\[torch\]'"):
        unflatten([Entry("w", "torch", "float32", (1,))], [np.ones(1, "<f4")], {})
