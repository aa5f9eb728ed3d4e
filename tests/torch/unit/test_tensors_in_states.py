"""Tensors of torch in models' states: checked, told apart by content, found by name, held against a model."""

import numpy as np
import pytest
import torch

from spillway.agents.models.placement import UnfitStateError, arrays, refuse_unfit
from spillway.agents.models.state import check_state, copied, fingerprint
from spillway.agents.models.torch_learner import Learner
from spillway.checkpoint.state import flatten
from spillway.lineage import reasons
from spillway.lineage.errors import ModelError, WireError
from spillway.lineage.message import Query
from spillway.lineage.replication import NUMPY
from spillway.lineage.values.codec import encode_query
from spillway.lineage.values.tensors import Bfloat16
from tests.unit.lineage.test_tensors import there_and_back
from tests.unit.models.test_rehearsal import state


def test_tensors_are_known_by_their_content_too():
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
    with pytest.raises(ModelError, match=r"entry 'a': a torch tensor of torch.float32 and layout torch.sparse_coo"):
        check_state("here", {"a": torch.eye(2).to_sparse()})


def test_a_check_copies_nothing_off_a_device():
    there = torch.zeros(3, 4, dtype=torch.bfloat16, device="meta")  # has no bits at all
    check_state("here", {"a": [there, {"b": 1}], "c": torch.zeros(2)})
    with pytest.raises(ModelError, match=r"entry 'a/\[1\]': a builtins.object cannot"):
        check_state("here", {"a": [there, {"b": object()}]})
    with pytest.raises(ModelError, match=r"entry 'a': a torch tensor of torch.float8_e4m3fn"):
        check_state("here", {"a": torch.zeros(3, dtype=torch.float8_e4m3fn, device="meta")})


def test_arrays_are_found_as_the_log_names_them():
    made = state(t=torch.zeros(2, 3, dtype=torch.bfloat16), flag=torch.zeros(2, dtype=torch.bool))
    logged = [entry for entry in flatten(made).entries if entry.dtype and entry.name != "steps"]
    assert sorted(arrays(made)) == sorted(logged)
    assert any(entry.kind == NUMPY for entry in logged)


def test_the_adapters_of_torch_modules_promise_it():
    def learner(width):
        return Learner(
            lambda: torch.nn.Linear(width, 1),
            torch.optim.Adam,
            inputs=lambda batch: torch.zeros(len(batch), width),
            loss=lambda said, _batch: said.sum(),
            answers=lambda said, _batch: [{} for _ in said],
        )

    refuse_unfit("p", learner(4), flatten(learner(4).initialize()).entries)
    with pytest.raises(UnfitStateError, match="weight"):
        refuse_unfit("p", learner(4), flatten(learner(5).initialize()).entries)


# Tensors of torch on the wire.


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
