"""Models that are TorchScript archives or exported programs, of a small network trained on scikit-learn's digits."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn.datasets import load_digits  # noqa: E402

from spillway.agents.models.inputs import Inputs  # noqa: E402
from spillway.agents.models.loading import load_model  # noqa: E402
from spillway.agents.workers.single import SingleWorker  # noqa: E402
from spillway.lineage.errors import ModelError  # noqa: E402
from spillway.topology.spec import StageSpec  # noqa: E402

X, Y = load_digits(return_X_y=True)
X = (X / 16).astype(np.float32)


class Digits(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))

    def forward(self, image):
        return self.layers(image)


class Scaled(torch.nn.Module):
    def forward(self, x, scale):
        return {"scaled": x * scale[:, None], "sum": x.sum(1)}


class Pair(torch.nn.Module):
    def forward(self, x):
        return x, x


class Nested(torch.nn.Module):
    def forward(self, parts: dict[str, torch.Tensor]):
        return parts["x"]


def queries(rows, name="image"):
    return [Inputs({name: row}, {}, "r") for row in rows]


def exported(module, *example, batch=True):
    sizes = tuple({0: torch.export.Dim("batch")} for _ in example) if batch else None
    torch.export.save(torch.export.export(module, example, dynamic_shapes=sizes), "m.pt2")
    return "torchscript:m.pt2"


def scripted(module):
    torch.jit.script(module).save("m.pt")
    return "torchscript:m.pt"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def digits():
    torch.manual_seed(0)
    network = Digits()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(torch.from_numpy(X)), torch.from_numpy(Y)).backward()
        optimizer.step()
    return network.eval()


@pytest.mark.parametrize("saved", ["scripted", "exported"])
def test_a_network_answers_as_it_did_before_it_was_saved(digits, saved):
    name = scripted(digits) if saved == "scripted" else exported(digits, torch.zeros(2, 64))
    model = load_model("s", name, {})
    results = model.predict(queries(X[:300]))
    assert np.mean([result["y"].argmax() for result in results] == Y[:300]) > 0.9
    assert np.allclose([each["y"] for each in results], digits(torch.from_numpy(X[:300])).detach(), atol=1e-5)
    assert list(results[0]) == ["y"]
    assert model.deterministic is True
    (by_another_name,) = model.predict(queries(X[:1], "x"))
    assert np.array_equal(by_another_name["y"], model.predict(queries(X[:1]))[0]["y"])


def test_only_an_exported_program_tells_its_signature(digits):
    model = load_model("s", exported(digits, torch.zeros(2, 64)), {})
    assert model.input_signature == {"image": {"dtype": "float32", "shape": [64]}}
    assert load_model("s", scripted(digits), {}).input_signature is None


@pytest.mark.parametrize("saved", ["scripted", "exported"])
def test_inputs_are_given_in_the_signatures_order_and_a_dicts_names_are_kept(saved):
    if saved == "scripted":
        torch.jit.trace(Scaled(), (torch.ones(2, 3), torch.ones(2)), strict=False).save("m.pt")
        name = "torchscript:m.pt"
    else:
        name = exported(Scaled(), torch.ones(2, 3), torch.ones(2))
    model = load_model("s", name, {})
    batch = [Inputs({"more": 0, "scale": np.float32(n), "x": np.ones(3, np.float32)}, {}, "r") for n in (2, 3)]
    results = model.predict(batch)
    assert [each["scaled"].tolist() for each in results] == [[2.0] * 3, [3.0] * 3]
    assert [float(each["sum"]) for each in results] == [3.0, 3.0]
    with pytest.raises(ValueError, match="the model takes x, scale, and the query has x"):
        model.predict(queries(X[:1], "x"))


def test_a_program_with_a_fixed_batch_says_so(digits):
    model = load_model("s", exported(digits, torch.zeros(1, 64), batch=False), {})
    assert len(model.predict(queries(X[:1]))) == 1
    with pytest.raises(ValueError, match="takes only batches of 1, not of 2"):
        model.predict(queries(X[:2]))


@pytest.mark.parametrize("name", ["m.pt", "m.pt2"])
def test_bad_files_are_named(here, name):
    place = f"stage 's': model 'torchscript:{name}': "
    with pytest.raises(ModelError, match=f"{place}there is no file '{name}'"):
        load_model("s", f"torchscript:{name}", {})
    (here / name).write_text("not a torch.export archive")
    with pytest.raises(ModelError, match=f"{place}{name} cannot be loaded: "):
        load_model("s", f"torchscript:{name}", {})
    torch.save(Digits().state_dict(), name)
    with pytest.raises(ModelError, match=f"{place}{name} cannot be loaded: "):
        load_model("s", f"torchscript:{name}", {})


def test_forms_that_no_batch_can_be_given_to_or_taken_from_are_refused():
    with pytest.raises(ModelError, match="nested or keyword inputs"):
        load_model("s", exported(Nested(), {"x": torch.ones(2)}, batch=False), {})
    with pytest.raises(TypeError, match="returns a tuple, not a tensor or a dict"):
        load_model("s", scripted(Pair()), {}).predict(queries(X[:1], "x"))


def test_a_worker_process_tells_the_signature(digits):
    worker = SingleWorker(StageSpec(name="s", model=exported(digits, torch.zeros(2, 64))), 1)
    try:
        assert worker.uses_torch
        assert worker.input_signature == {"image": {"dtype": "float32", "shape": [64]}}
        assert len(worker.predict(queries(X[:2]))) == 2
    finally:
        worker.close()
