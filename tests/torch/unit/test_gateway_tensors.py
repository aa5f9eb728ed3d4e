"""Tensors of the gateway in a process that has torch, where bfloat16 is torch's own."""

import torch
from hypothesis import given

from spillway.lineage.values.plain import is_torch
from tests.unit.gateway.test_tensors import there_and_back
from tests.unit.lineage.strategies import bfloat16s, same


@given(bfloat16s)
def test_bfloat16_is_torchs_and_has_the_same_bits(value):
    tensor = there_and_back(value, raw=True)
    assert is_torch(tensor)
    assert tensor.dtype is torch.bfloat16
    assert same(tensor, value)
