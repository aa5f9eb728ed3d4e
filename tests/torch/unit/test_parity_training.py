"""Parity models of torch modules: trained on digits in seconds, they reconstruct what is missing."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from examples.parm import networks
from spillway.agents.cli.commands.parity import _tell_made
from spillway.agents.coding.card import Card
from spillway.agents.coding.codes import SameParity, Sum
from spillway.agents.coding.data import groups, read_data
from spillway.agents.coding.evaluation import Grades
from spillway.agents.coding.making import Made, Maker
from spillway.agents.coding.parity import Parity
from spillway.agents.coding.training import Effort, fit, initialise, targets
from spillway.agents.models.inputs import Inputs
from spillway.lineage.errors import ModelError
from spillway.topology.load import load

MLP = "examples.parm.networks:Mlp"


@pytest.fixture(scope="module")
def maker(tmp_path_factory):
    """A maker for the example's MLP, whose weights are not looked for where the user's are."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        stage = load("examples/parm/digits.yaml").written.stage("mlp")
        data, test = (read_data(f"examples.parm.data:{name}", stage) for name in ("training", "test"))
        yield Maker(stage, tmp_path_factory.mktemp("parity"), data, test, k=2, encoder="sum")
        torch.set_num_threads(threads)


def folder(maker):
    return maker._folder


def test_in_seconds_reconstructions_are_far_better_than_chance(maker):
    done = maker.make(0, Effort(epochs=20), architecture=MLP)
    assert done.grades.deployed > 0.9
    assert done.card.degraded > 0.8
    assert done.grades.default < 0.2
    again = maker.make(0, Effort(epochs=20), architecture=MLP)
    assert again.card.degraded == done.card.degraded  # by the seed
    told = Parity(str(folder(maker)), 0).predict([Inputs({"image": np.zeros((1, 8, 8), np.float32)}, {}, "")])
    assert told[0]["output"].shape == (10,)


def test_weights_of_another_architecture_are_refused(maker):
    maker.make(1, Effort(epochs=1), architecture=MLP)
    card = folder(maker) / "row1.json"
    card.write_text(card.read_text().replace(MLP, "examples.parm.networks:LeNet"))
    with pytest.raises(ModelError, match="weights do not fit its architecture"):
        Parity(str(folder(maker)), 1)


def test_training_stops_when_what_it_keeps_aside_is_told_no_better_and_takes_the_best_weights(maker):
    told, module = [], networks.Mlp()
    draw = np.random.default_rng(0)
    inputs = {"image": draw.normal(size=(60, 1, 8, 8)).astype(np.float32)}
    outputs = {"output": draw.normal(size=(60, 10)).astype(np.float32)}  # nothing can be learnt of them
    best = fit(module, inputs, outputs, Sum(2), 2, 0, Effort(epochs=100, batch=16), told.append, scores=True)
    assert best < 50
    assert len(told) < 100
    assert told[-1] == 100


def test_the_deployed_models_weights_are_where_training_begins(maker):
    assert maker._begin(networks.LeNet()) is None
    begin = maker._begin(networks.Mlp())
    module = networks.Mlp()
    assert begin.keys() == module.state_dict().keys()
    few = {"image": np.zeros((4, 1, 8, 8), np.float32)}
    fit(module, few, {"output": np.zeros((4, 10), np.float32)}, Sum(2), 2, 0, Effort(1, rate=0.0), begin=begin)
    assert all(torch.equal(value, begin[name]) for name, value in module.state_dict().items())


@pytest.mark.parametrize(("degraded", "warned"), [(0.85, False), (0.75, True), (None, False)])
def test_made_answers_that_are_much_worse_are_told_of(degraded, warned, capsys):
    card = Card.model_construct(row=0, k=2, encoder="sum", metric="accuracy", degraded=degraded)
    _tell_made(Path("here"), [Made(card, Grades("accuracy", 0.9, {}, 0.1, labelled=True), 1.0, 7)], as_json=False)
    out, err = capsys.readouterr()
    assert "A_a" in out
    assert "A_d" in out
    assert ("warning: row 0: A_d" in err) == warned


class Frozen(networks.Mlp):
    def forward(self, image):
        return super().forward(image).detach()


class Narrow(networks.Mlp):
    def forward(self, image):
        return super().forward(image)[:, :3]


@pytest.mark.parametrize(("network", "says"), [(Frozen, "without gradients"), (Narrow, r"shape \[3\]")])
def test_a_module_that_cannot_be_trained_is_named(maker, monkeypatch, network, says):
    monkeypatch.setattr(networks, "Mlp", network)
    with pytest.raises(ModelError, match=says):
        maker.make(0, Effort(epochs=1), architecture=MLP)


def test_targets_are_weighted_as_the_code_solves_them():
    outputs = {"y": np.random.default_rng(0).random((8, 3))}
    members = groups(8, 3, np.random.default_rng(1))
    for row in range(3):
        wanted = sum((place + 1) ** row * outputs["y"][members[:, place]] for place in range(3))
        assert np.allclose(targets(outputs, Sum(3), row, members)["y"], wanted)
    assert np.allclose(targets(outputs, SameParity(3), 1, members)["y"], targets(outputs, Sum(3), 0, members)["y"])


def test_nothing_of_the_deployed_models_weights_is_left():
    module = networks.ResNet()
    for parameter in module.parameters():
        nn.init.constant_(parameter, 7.0)
    initialise(module)
    assert not any((parameter == 7.0).any() for parameter in module.parameters())
