"""A torch module as variants: what is exported answers as the module does, and holds no pickle."""

import numpy as np
import pytest
import torch
from torch import nn

from spillway.agents.models.inputs import Inputs
from spillway.agents.registry.archive import check_archive
from spillway.agents.registry.generator import generate
from spillway.agents.registry.programs import in_int8
from spillway.agents.registry.register import store
from spillway.agents.registry.served import Registered
from spillway.agents.registry.validation import Validation
from spillway.lineage.errors import ModelError


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 32), nn.Linear(32, 5)
    ).eval()


ROWS = np.random.default_rng(0).normal(size=(40, 64)).astype(np.float32)


def test_all_formats_answer_nearly_as_the_module_does_in_batches_of_any_size(tmp_path):
    module = network()
    with torch.inference_mode():
        right = module(torch.from_numpy(ROWS)).numpy()
    queries = Validation({"x": ROWS}, right.argmax(1))
    made = generate(module, queries, tmp_path, threads=[1], hardware=["cpu"])
    assert [each.key for each in made.built] == ["eager", "bf16", "int8", "onnx", "onnx-int8"]
    assert made.left_out == []
    repository = tmp_path / "repository"
    repository.mkdir()
    for each in made.built:
        model = Registered(str(repository), store(each.file, repository).name, queries.signature)
        told = [
            one
            for batch in (slice(0, 1), slice(1, 18), slice(18, 40))
            for one in model.predict([Inputs(query, {}, "") for query in queries.queries()[batch]])
        ]
        scores = np.stack([one["scores"] for one in told])
        exact = each.key in ("eager", "onnx")
        np.testing.assert_allclose(scores, right, atol=1e-4 if exact else 0.05 * np.abs(right).max(), err_msg=each.key)
        assert [one["label"] for one in told] == scores.argmax(1).tolist()
    sizes = {each.key: each.file.stat().st_size for each in made.built}
    assert sizes["bf16"] < sizes["eager"]


def test_what_torch_saves_by_itself_holds_a_pickle_and_is_refused(tmp_path):
    program = torch.export.export(network(), (torch.from_numpy(ROWS[:2]),))
    torch.export.save(program, tmp_path / "raw.pt2")
    with pytest.raises(ModelError, match="sample_inputs"):
        check_archive(tmp_path / "raw.pt2")


def test_a_module_that_cannot_be_exported_is_told_of_by_format(tmp_path):
    class Odd(nn.Module):
        def forward(self, x):
            return x.sum(1) if x.sum() > 0 else x

    made = generate(Odd(), Validation({"x": ROWS}, np.zeros(40, int)), tmp_path, threads=[1], hardware=["cpu", "cuda"])
    assert made.built == []
    assert {(each.format, each.device) for each in made.left_out} == {
        (kind, device) for kind in ("eager", "bf16", "int8", "onnx", "onnx-int8") for device in ("cpu", "cuda")
    }
    with pytest.raises(ModelError, match=r"no torch\.nn\.Linear"):
        in_int8(Odd())
