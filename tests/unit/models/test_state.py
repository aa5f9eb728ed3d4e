"""What a state may hold, and how states are told apart."""

import sys

import numpy as np
import pytest

from agents.models.state import SMALL_BYTES, check_state, copied, fingerprint, size
from lineage.errors import ModelError
from lineage.values.tensors import Bfloat16


def test_arrays_and_small_plain_values_are_a_state():
    check_state("here", {"a": np.zeros(3), "b": None, "c": [1, 2.5, "x", b"y", {"z": True}], "d": np.float32(1)})
    check_state("here", {})


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ([1], "here: a state must be a mapping of names to arrays and values, not a value of type list"),
        ({1: 2}, "here: a name must be a string of 1 to 256 bytes, not 1"),
        ({"": 2}, "a name must be a string"),
        ({"a": {1, 2}}, r"here: state\['a'\] cannot be kept: a value of type set is neither an array"),
        ({"a": {1: 2}}, "the keys of a map must be strings"),
        ({"a": [np.zeros(3)]}, "arrays and tensors must stand at the top of the state, each under a name of its own"),
        ({"a": 1 << 63}, "an int must fit 64 bits"),
        ({"a": "x" * (SMALL_BYTES + 1)}, "for a plain value; keep it in an array"),
        ({"a": np.array([object()])}, "an array of object has no fixed bits; use one of"),
        ({"a": np.array(["x"])}, "an array of <U1 has no fixed bits"),
        ({"a": np.ma.masked_array([1.0], [True])}, "has no fixed bits"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_its_name_and_the_fix(state, message):
    with pytest.raises(ModelError, match=message):
        check_state("here", state)


def test_equal_content_has_one_fingerprint_wherever_it_lies():
    plain = np.arange(12, dtype=np.float32).reshape(3, 4)
    state = {"a": plain, "b": (1, 2), "c": np.float64(2)}
    same = [
        {"c": 2.0, "b": [1, 2], "a": plain.copy()},
        {"a": np.asfortranarray(plain), "b": [1, 2], "c": 2.0},
        {"a": plain.astype(">f4"), "b": [1, 2], "c": 2.0},
        {"a": np.repeat(plain, 2, axis=1)[:, ::2], "b": [1, 2], "c": 2.0},
    ]
    assert {fingerprint(each) for each in same} == {fingerprint(state)}


@pytest.mark.parametrize(
    "other",
    [
        {"a": np.float32([1, 2]), "b": 2},
        {"a": np.float64([1, 2]), "b": 1},
        {"a": np.float32([[1, 2]]), "b": 1},
        {"a": np.float32([1, np.nextafter(np.float32(2), np.float32(3))]), "b": 1},
        {"a": np.float32([1, 2]), "b": 1.0},
        {"a": np.float32([1, 2]), "b": True},
        {"a": np.float32([1, 2])},
        {"z": np.float32([1, 2]), "b": 1},
        {"a": [1.0, 2.0], "b": 1},
    ],
)
def test_another_name_type_shape_or_bit_is_another_fingerprint(other):
    assert fingerprint(other) != fingerprint({"a": np.float32([1, 2]), "b": 1})


def test_minus_zero_and_empty_arrays_are_told_apart():
    assert fingerprint({"a": np.float32([0.0])}) != fingerprint({"a": np.float32([-0.0])})
    assert fingerprint({"a": np.zeros((0, 3))}) != fingerprint({"a": np.zeros((3, 0))})


def test_a_copy_shares_no_memory():
    state = {"a": np.zeros(3), "b": [1, [2]]}
    copy = copied(state)
    copy["a"] += 1
    copy["b"][1].append(3)
    assert state["a"].tolist() == [0, 0, 0]
    assert state["b"] == [1, [2]]
    assert size(state) == 24


def test_tensors_are_known_by_their_content_too():
    torch = pytest.importorskip("torch")
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    state = {"a": torch.from_numpy(array.copy()), "p": torch.nn.Parameter(torch.ones(2))}
    check_state("here", state)
    assert fingerprint(state) == fingerprint({"a": array, "p": np.ones(2, np.float32)})
    assert fingerprint({"a": state["a"].t()}) == fingerprint({"a": array.T})
    copied(state)["p"] += 1
    assert state["p"].tolist() == [1, 1]
    half = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    check_state("here", {"a": half})
    assert fingerprint({"a": half}) == fingerprint({"a": Bfloat16(half.view(torch.int16).numpy().view(np.uint16))})
    with pytest.raises(ModelError, match=r"state\['a'\] cannot be kept: a tensor of layout torch.sparse_coo"):
        check_state("here", {"a": torch.eye(2).to_sparse()})


def test_states_of_arrays_need_no_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    check_state("here", {"a": np.zeros(3)})
    assert fingerprint({"a": np.zeros(3)})
