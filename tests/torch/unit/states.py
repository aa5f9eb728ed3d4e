"""What hypothesis makes of states."""

import numpy as np
import torch
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from spillway.lineage.values.tensors import DTYPES

TORCH_DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.bool]
TORCH_DTYPES += [torch.uint8, torch.int16, torch.int32, torch.complex64, torch.complex128]

shapes = npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9)
numpy_arrays = st.sampled_from(sorted(DTYPES)).flatmap(lambda name: npst.arrays(np.dtype(name), shapes))


@st.composite
def torch_tensors(draw):
    shape, dtype = draw(shapes), draw(st.sampled_from(TORCH_DTYPES))
    random = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    tensor = (torch.rand(shape, generator=random) * 100).to(dtype)
    return tensor.transpose(0, -1) if tensor.ndim > 1 and draw(st.booleans()) else tensor


tensors = numpy_arrays | torch_tensors()
keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["~", "[0]", "(1)", "#2", "a/b", ""]
)
small = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | keys | st.binary(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys | st.integers(-9, 9), inner, max_size=3)
    ),
    max_leaves=5,
)
nested = st.recursive(
    tensors | small,
    lambda inner: (
        st.dictionaries(keys | st.integers(-9, 9), inner, max_size=4)
        | st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=6,
)
states = st.dictionaries(keys, nested, max_size=5)
