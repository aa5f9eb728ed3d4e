"""Tensors of torch on the wire."""

import numpy as np
import pytest
import torch

from lineage import reasons
from lineage.errors import WireError
from lineage.message import Query
from lineage.values.codec import encode_query
from tests.unit.lineage.test_tensors import there_and_back


def test_torch_bfloat16_comes_back_as_torchs():
    for tensor in (
        torch.tensor([[1.5, -2.0], [float("inf"), 3e38]], dtype=torch.bfloat16),
        torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).T,
        torch.zeros((0, 3), dtype=torch.bfloat16),
        torch.tensor(0.5, dtype=torch.bfloat16, requires_grad=True),
    ):
        back = there_and_back(tensor)
        assert back.dtype == torch.bfloat16
        assert torch.equal(back, tensor)


def test_other_torch_tensors_come_back_as_numpys():
    for tensor in (
        torch.arange(6.0).reshape(2, 3).T,
        torch.tensor([True, False]),
        torch.tensor([1 + 2j]).conj(),
        torch.ones(2, requires_grad=True),
        torch.tensor(3, dtype=torch.uint16),
    ):
        back = there_and_back(tensor)
        assert isinstance(back, np.ndarray)
        assert np.array_equal(back, tensor.detach().resolve_conj().numpy())


def test_torch_tensors_that_have_no_place_on_the_wire_are_refused():
    for tensor in (
        torch.zeros(2, dtype=torch.float8_e4m3fn),
        torch.eye(3).to_sparse(),
        torch.zeros(2, device="meta"),
    ):
        with pytest.raises(WireError) as error:
            encode_query(Query({"x": tensor}))
        assert error.value.reason == reasons.NOT_ENCODABLE
