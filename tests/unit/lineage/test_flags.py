"""Flags: how they are merged, what bounds them, what a model may say."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.lineage import reasons
from spillway.lineage.errors import WireError
from spillway.lineage.flags import CUT, MAX_BYTES, MAX_NAMES, RULES, bounded, checked, cut, is_cut, merge
from spillway.lineage.message import Query
from spillway.lineage.schemas import OWN_TEXTS, QUERY
from spillway.lineage.values.codec import Decoder, encode_query

from .schema_versions import reader_of, written_with

scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([-0.5, 0.0, 0.5, 2.0]) | st.text("ab")
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xy"), inner), max_leaves=4
)
names = st.sampled_from([*RULES, "mine", "other"])
stages = st.sampled_from(["a", "b", "c"])
flags = st.dictionaries(stages, st.dictionaries(names, values, max_size=6), max_size=3)
long_flags = st.dictionaries(
    st.text(max_size=30), st.dictionaries(st.text(max_size=80), values | st.text(max_size=6_000), max_size=20)
)


def said(merged):
    """Without the stages that say nothing."""
    return {stage: names for stage, names in merged.items() if names}


@given(st.lists(flags, min_size=1, max_size=3))
def test_a_merge_is_associative_commutative_and_idempotent(parts):
    whole = said(merge(parts))
    for turned in itertools.permutations(parts):
        assert said(merge(turned)) == whole
        assert said(merge([merge(turned[:2]), *turned[2:]])) == whole
    assert said(merge([merge(parts), *parts])) == whole
    assert whole.keys() == set().union(*(said(part) for part in parts))


def test_names_of_one_stage_merge_by_the_table():
    one = {"default": False, "confidence": 0.9, "variant": "b", "versions": {"t": [1, 9], "u": [2, 0]}, "mine": [2]}
    other = {"default": True, "confidence": 0.7, "variant": "a", "versions": {"t": [2, 1]}, "mine": [1], "x": "y"}
    members = [{"members": {"cnn": ["cat", 0.6]}}, {"members": {"linear": ["dog", 0.4]}}]
    merged = merge([{"s": one | members[0]}, {"s": other | members[1]}, {"t": {"confidence": 0.1}}])
    assert merged == {
        "s": {
            "default": True,
            "confidence": 0.7,
            "variant": "a",
            "versions": {"t": [2, 1], "u": [2, 0]},
            "members": {"cnn": ["cat", 0.6], "linear": ["dog", 0.4]},
            "mine": [1],
            "x": "y",
        },
        "t": {"confidence": 0.1},
    }
    assert one["default"] is False  # what came is not changed


@given(long_flags)
def test_what_is_kept_is_within_the_bounds_and_says_that_it_was_cut(told):
    kept = bounded(told, "here")
    assert len(json.dumps(kept, ensure_ascii=False).encode("utf-8", "replace")) <= MAX_BYTES
    assert all(len(entry) <= MAX_NAMES for entry in kept.values())
    assert kept is told or kept["here"][CUT]
    assert bounded(kept, "here") is kept
    for stage, entry in kept.items():
        assert all(name == CUT or told[stage][name] == value for name, value in entry.items())


def test_the_names_of_the_table_are_left_out_last():
    many = {f"n{place:02}": place for place in range(2 * MAX_NAMES)} | {"variant": "small", "confidence": 1}
    kept = bounded({"s": many}, "t")
    assert kept["t"] == {CUT: True}
    assert {"variant", "confidence", "n00"} <= kept["s"].keys()
    assert bounded({"s": {"big": "b" * MAX_BYTES, "default": True}}, "s") == {"s": {CUT: True, "default": True}}
    assert [is_cut(each) for each in (kept, cut("s"), {"s": {"default": True}}, {})] == [True, True, False, False]


def test_a_model_may_say_scalars_of_numpy_and_plain_values():
    told = checked({"confidence": np.float32(0.5), "n": np.int64(3), "default": np.bool_(True), "l": (1, {"a": None})})
    assert told == {"confidence": 0.5, "n": 3, "default": True, "l": [1, {"a": None}]}
    assert type(told["confidence"]) is float


@pytest.mark.parametrize(
    "wrong",
    [
        [("a", 1)], 0.5, {1: 2}, {"n" * 65: 1}, {"a": {1, 2}}, {"a": b"b"}, {"a": np.zeros(2)}, {"a": 2**63},
        {"a": "\ud800"}, {"confidence": "high"}, {"confidence": True}, {"default": 1}, {"versions": [1]},
        {"a": [[]] * 2 + [{"b": object()}]},
    ],
)  # fmt: skip
def test_what_a_model_says_wrongly_is_refused(wrong):
    with pytest.raises(WireError) as refused:
        checked(wrong)
    assert refused.value.reason == reasons.BAD_RESULT
    assert "flag" in str(refused.value)


@given(flags)
def test_flags_travel_with_a_query_and_none_take_a_byte(told):
    assert Decoder().query(encode_query(Query({"x": 1}, {}, [], told))).flags == told
    assert encode_query(Query({"x": 1})).endswith(b"\0\0\0")


def test_a_query_that_was_written_before_there_were_flags_has_none():
    schema = json.loads(OWN_TEXTS[QUERY])
    assert schema["fields"].pop()["name"] == "flags"
    text = json.dumps(schema)
    message = written_with(text, {"inputs": {"n": {"of": 5}}, "parameters": {}, "timings": []})
    assert reader_of(text).query(message) == Query({"n": 5})
