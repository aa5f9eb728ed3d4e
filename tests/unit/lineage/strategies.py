"""What hypothesis makes of messages: values, tensors, queries and outcomes that may travel."""

import math

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from spillway.lineage.message import DROPPED, FAILED, PREDICTION, DeadLetter, Outcome, PlanWord, Query, StageTiming
from spillway.lineage.values.plain import is_tensor, is_torch
from spillway.lineage.values.tensors import DTYPES, Bfloat16, named

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
longs = st.integers(-(2**63), 2**63 - 1)

tensors = st.sampled_from(sorted(DTYPES)).flatmap(
    lambda name: npst.arrays(
        np.dtype(name).newbyteorder(">") if name.startswith("float") else np.dtype(name),
        npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
    )
)
bfloat16s = npst.arrays(np.uint16, npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)).map(Bfloat16)
scalars = st.none() | st.booleans() | longs | st.floats() | texts | st.binary(max_size=40) | tensors
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4), max_leaves=12
)
maps = st.dictionaries(names, values, max_size=4)
timings = st.builds(
    StageTiming, names, st.floats(), st.floats(), st.floats(), st.integers(0, 4096), names, names, st.integers(0, 2**53)
)
queries = st.builds(Query, maps, maps, st.lists(timings, max_size=3), maps)
outcomes = st.builds(
    Outcome,
    st.sampled_from([PREDICTION, DROPPED, FAILED]),
    maps,
    names,
    texts,
    names,
    st.lists(timings, max_size=3),
    maps,
)
dead_letters = st.builds(
    DeadLetter,
    texts,
    st.integers(0, 2**31 - 1),
    longs,
    names,
    names,
    texts,
    longs,
    st.none() | st.binary(max_size=30),
    st.none() | st.binary(max_size=200),
    st.lists(st.tuples(st.binary(max_size=12), st.none() | st.binary(max_size=12)), max_size=4),
)

ints = st.integers(-(2**31), 2**31 - 1)
floats = st.floats(width=32)
times = st.integers(0, 2**62)
plan_words = st.builds(
    PlanWord,
    names,
    ints,
    times,
    times,
    *[floats] * 3,
    st.lists(floats, max_size=24).map(tuple),
    ints,
    ints,
    *[floats] * 6,
    ints,
    st.booleans(),
    st.lists(floats, max_size=24).map(tuple),
)


def same(one, other):  # noqa: PLR0911  one for each type
    """Deep equality with NaN equal to itself, types and dtypes (but not byte orders) the same.

    A bfloat16 tensor is torch's where a test before has imported torch, and equals one of the same bits.
    """
    if is_torch(one) or is_torch(other):
        if not (is_tensor(one) and is_tensor(other)):
            return False
        (dtype, bits), (other_dtype, other_bits) = named(one), named(other)
        return dtype == other_dtype and np.array_equal(bits, other_bits)
    if isinstance(one, np.ndarray):
        return (
            isinstance(other, np.ndarray)
            and one.dtype.newbyteorder("<") == other.dtype
            and one.shape == other.shape
            and one.astype(other.dtype).tobytes() == other.tobytes()
        )
    if type(one) is not type(other):
        return False
    if isinstance(one, Bfloat16):
        return np.array_equal(one.float32(), other.float32(), equal_nan=True)
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(other)) or (
            one == other and math.copysign(1, one) == math.copysign(1, other)
        )
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if hasattr(one, "__slots__"):
        return all(same(getattr(one, name), getattr(other, name)) for name in one.__slots__)
    return one == other
