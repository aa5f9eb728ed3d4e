import numpy as np
import pytest

torch = pytest.importorskip("torch")

from spillway.agents.models.inputs import Inputs  # noqa: E402
from spillway.agents.models.torch_module import TorchModel  # noqa: E402


def inputs(**values):
    return Inputs(values, {}, "r")


class Sum(torch.nn.Module):
    version = "v1"

    def forward(self, x):
        return x.sum(dim=1)


class Named(torch.nn.Module):
    def forward(self, x, y):
        return {"total": x + y, "half": (x / 2).to(torch.bfloat16)}


class Scalar(torch.nn.Module):
    def forward(self, x):
        return x.sum()


class Own(torch.nn.Module):
    def predict(self, batch):
        return [{"grad": torch.is_grad_enabled()} for _ in batch]


def test_a_batch_is_stacked_run_once_and_split():
    model = TorchModel(Sum())
    results = model.predict([inputs(x=np.array([1.0, 2.0], np.float32)), inputs(x=np.array([3.0, 4.0], np.float32))])
    assert [float(result["output"]) for result in results] == [3.0, 7.0]
    assert model.version == "v1"


def test_different_shapes_run_apart_and_keep_their_places():
    rows = [np.ones(2, np.float32), np.ones(3, np.float32), np.ones(2, np.float32) * 2]
    results = TorchModel(Sum()).predict([inputs(x=row) for row in rows])
    assert [float(result["output"]) for result in results] == [2.0, 3.0, 4.0]


def test_named_outputs_and_bfloat16():
    (result,) = TorchModel(Named()).predict([inputs(x=np.float32([1, 2]), y=np.float32([3, 4]))])
    assert result["total"].tolist() == [4.0, 6.0]
    assert result["half"].dtype == torch.bfloat16


def test_read_only_inputs_are_taken():
    array = np.frombuffer(np.float32([1, 2]).tobytes(), np.float32)
    (result,) = TorchModel(Sum()).predict([inputs(x=array)])
    assert float(result["output"]) == 3.0


def test_an_output_without_a_batch_dimension_is_refused():
    with pytest.raises(ValueError, match="first dimension must be 1"):
        TorchModel(Scalar()).predict([inputs(x=np.float32([1, 2]))])


def test_a_module_with_a_predict_of_its_own_runs_without_gradients():
    assert TorchModel(Own()).predict([inputs()]) == [{"grad": False}]
