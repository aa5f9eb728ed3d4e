"""What a state may hold, and how states are told apart."""

import sys

import numpy as np
import pytest

from spillway.agents.models.state import check_key, check_state, copied, fingerprint, size
from spillway.checkpoint.state import flatten, unflatten
from spillway.lineage.errors import ModelError
from spillway.lineage.values.tensors import Bfloat16


def test_tensors_and_small_values_nested_at_will_are_a_state():
    check_state("here", {"a": np.zeros(3), "b": None, "c": [1, 2.5, "x", b"y", {"z": True}], "d": np.float32(1)})
    check_state("here", {"layers": [{"w": np.zeros(3)}, {"w": np.ones(2)}], 7: {"seed": 1 << 100, "of": (1, {2: 3})}})
    check_state("here", {})


@pytest.mark.parametrize("state", [{"a": {1: 2}}, {"a": 1 << 63}, {"a": [np.zeros(3)]}, {"a": (1, np.int8(2))}, {1: 2}])
def test_what_is_taken_comes_back_as_the_log_has_it(state):
    """What the check takes, the log keeps, and the other way round: there is one contract."""
    check_state("here", state)
    flat = flatten(state)
    back = unflatten(flat.entries, flat.tensors, flat.values)
    assert repr(back) == repr(state)
    assert fingerprint(back) == fingerprint(state) == fingerprint(copied(state))


@pytest.mark.parametrize("key", ["", "x" * 513, 3])
def test_what_can_be_no_key(key):
    with pytest.raises(ModelError, match=r"here: .* cannot be a key of a state: use a text of 1 to 512 bytes"):
        check_key("here", key)


def test_equal_content_has_one_fingerprint_wherever_it_lies():
    plain = np.arange(12, dtype=np.float32).reshape(3, 4)
    state = {"a": plain, "b": (1, 2), "c": 2.0}
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
    state = {"a": np.zeros(3), "b": [1, [2]], "c": ({"d": np.zeros(1)}, Bfloat16(np.zeros(2, np.uint16)))}
    copy = copied(state)
    copy["a"] += 1
    copy["b"][1].append(3)
    copy["c"][0]["d"] += 1
    copy["c"][1].bits[0] = 1
    assert state["a"].tolist() == [0, 0, 0]
    assert state["b"] == [1, [2]]
    assert state["c"][0]["d"][0] == state["c"][1].bits[0] == 0
    assert size(state) == 24 + 8 + 4


def test_states_of_arrays_need_no_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    check_state("here", {"a": np.zeros(3)})
    assert fingerprint({"a": np.zeros(3)})
