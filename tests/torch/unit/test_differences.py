"""What differs between two states, element by element."""

import math

import numpy as np
import torch
from hypothesis import given

from spillway.checkpoint.differences import What, between, between_keys

from .states import states


def only(differences):
    (one,) = differences
    return one


@given(states)
def test_a_state_does_not_differ_from_itself(state):
    assert between(state, state) == ()


def test_elements_are_counted_and_the_largest_difference_told():
    before = {"w": torch.tensor([1.0, 2.0, 3.0]), "same": np.zeros(4)}
    found = only(between(before, {"w": torch.tensor([1.0, 2.5, 1.0]), "same": np.zeros(4)}))
    assert (found.name, found.what, found.elements, found.changed, found.largest) == ("w", What.CHANGED, 3, 2, 2.0)


def test_bits_decide_so_a_nan_that_stays_is_no_change_and_a_new_one_has_no_size():
    before = {"x": np.array([np.nan, 1.0, 0.0])}
    found = only(between(before, {"x": np.array([np.nan, np.nan, 0.0])}))
    assert found.changed == 1
    assert math.isnan(found.largest)
    found = only(between(before, {"x": np.array([np.nan, np.inf, -0.0])}))
    assert (found.changed, found.largest) == (2, 0.0)


def test_other_dtypes_are_compared_as_numbers():
    one, other = torch.tensor([1.5], dtype=torch.bfloat16), torch.tensor([-2.0], dtype=torch.bfloat16)
    assert only(between({"x": one}, {"x": other})).largest == 3.5
    assert only(between({"x": np.array([True])}, {"x": np.array([False])})).largest == 1.0
    assert only(between({"x": np.array([3 + 4j])}, {"x": np.array([0j])})).largest == 5.0
    assert only(between({"x": np.uint8(3)}, {"x": np.uint8(5)})).largest == 2.0


def test_entries_come_go_and_change_their_form():
    before = {"gone": np.zeros(1), "form": np.zeros(2), "lr": 0.5, "kept": "a"}
    after = {"form": np.zeros(3), "lr": 0.25, "kept": "a", "new": 1}
    assert [(found.name, found.what) for found in between(before, after)] == [
        ("gone", What.REMOVED),
        ("form", What.RETYPED),
        ("lr", What.CHANGED),
        ("new", What.ADDED),
    ]
    assert between(before, after)[2].values == (0.5, 0.25)


def test_many_elements_are_compared_in_stretches():
    before = np.zeros((1 << 20) + 5, np.int8)
    after = before.copy()
    after[[3, -1]] = (7, -9)
    found = only(between({"x": before}, {"x": after}))
    assert (found.elements, found.changed, found.largest) == (len(before), 2, 9.0)


def test_keys_are_told_apart():
    before = {"gone": {}, "same": {"n": 1}, "moved": {"n": 1, "h": np.zeros(2)}}
    after = {"same": {"n": 1}, "moved": {"n": 2, "h": np.zeros(2)}, "new": {}}
    found = between_keys(before, after)
    assert (found.added, found.removed, found.same) == (("new",), ("gone",), 1)
    assert [each.name for each in found.changed["moved"]] == ["n"]
