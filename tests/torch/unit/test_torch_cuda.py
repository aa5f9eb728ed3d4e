"""A torch module on a GPU: the same answers as on the CPU, and results that come back to the host."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")

from spillway.agents.models.torch_module import TorchModel  # noqa: E402 - imports torch


class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(8, 3)

    def forward(self, x):
        return {"logits": self.linear(x), "half": self.linear(x).to(torch.bfloat16), "where": x}


def test_a_batch_gives_on_the_gpu_what_it_gives_on_the_cpu():
    rng = np.random.default_rng(0)
    batch = [{"x": rng.random(8, np.float32)} for _ in range(16)]
    module = Head()
    on_cpu = TorchModel(module).predict(batch)
    on_gpu = TorchModel(module, "cuda").predict(batch)
    assert next(module.parameters()).is_cuda
    for cpu, gpu, query in zip(on_cpu, on_gpu, batch, strict=True):
        assert isinstance(gpu["logits"], np.ndarray)
        assert gpu["half"].device.type == "cpu"
        np.testing.assert_allclose(gpu["logits"], cpu["logits"], rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(gpu["where"], query["x"])
