"""What hypothesis makes of values that have a tensor of their own, and of bodies that resemble a request."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from spillway.agents.gateway.tensors import BYTES, DTYPE_OF
from spillway.lineage.values.tensors import DTYPES
from tests.unit.lineage.strategies import longs, texts

arrays = st.sampled_from([name for name in DTYPES if not name.startswith("complex")]).flatmap(
    lambda name: npst.arrays(np.dtype(name), npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)
plain = st.booleans() | longs | st.floats() | texts | st.binary(max_size=40) | arrays

_odd = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just(10**4000),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=4,
)


def _mostly(*usual):
    return st.one_of(*usual, _odd)


_data = st.recursive(st.integers(-3, 300) | st.floats() | st.booleans() | texts, st.lists, max_leaves=6)
_content = st.sampled_from(["json", "base64", "str"])
_entries = st.fixed_dictionaries(
    {"name": _mostly(st.sampled_from("xyz"))},
    optional={
        "datatype": _mostly(st.sampled_from([*DTYPE_OF, BYTES])),
        "shape": _mostly(st.lists(st.integers(-1, 4), max_size=3)),
        "data": _mostly(_data),
        "parameters": _mostly(st.fixed_dictionaries({}, optional={"content_type": _content, "binary_data_size": _odd})),
    },
)
parsed = _mostly(
    st.fixed_dictionaries(
        {"inputs": _mostly(st.lists(_entries, max_size=3))},
        optional={"id": _odd, "outputs": _mostly(st.lists(_entries, max_size=2)), "parameters": _odd},
    )
)
