"""Torch modules as stateful models: what learns while it serves, and what remembers a stream."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from spillway.agents.models.stateful import fingerprints  # noqa: E402
from spillway.agents.models.torch_learner import GROUPS, Learner  # noqa: E402
from spillway.agents.models.torch_streams import Streams  # noqa: E402
from spillway.agents.models.warm_up import copy_states, rehearse  # noqa: E402
from spillway.lineage.errors import ModelError  # noqa: E402
from tests.state_runs import run  # noqa: E402


def rows(batch):
    return torch.tensor([query["x"] for query in batch])


def answers(said, batch):
    return [{"y": value} for value in said[:, 0].tolist()]


def squares(said, batch):
    return functional.mse_loss(said[:, 0], torch.tensor([query["y"] for query in batch]))


def network():
    return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))


def learner(optimize=lambda parameters: torch.optim.Adam(parameters, lr=0.05)):
    return Learner(network, optimize, inputs=rows, loss=squares, answers=answers, reads=lambda query: "y" not in query)


def taught(count=6, size=4):
    drawn = np.random.default_rng(2).normal(size=(count, size, 2)).astype(np.float32)
    return [[{"x": row.tolist(), "y": float(row[0] - row[1])} for row in part] for part in drawn]


OPTIMIZERS = {
    "plain": lambda parameters: torch.optim.SGD(parameters, lr=0.05),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True),
    "adam": lambda parameters: torch.optim.AdamW(parameters, lr=0.05, amsgrad=True),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.05),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_any_optimizer_s_state_is_whole(name):
    found = rehearse("here", lambda: learner(OPTIMIZERS[name]), taught())
    assert found.versions == 6
    assert found.repeats


def test_parameter_groups_keep_their_settings():
    def optimize(parameters):
        first, *others = parameters
        return torch.optim.SGD([{"params": [first], "lr": 0.5}, {"params": others}], lr=0.1)

    model = learner(optimize)
    assert [group["lr"] for group in model.initialize()[GROUPS]] == [0.5, 0.1]
    assert rehearse("here", lambda: learner(optimize), taught()).repeats


def test_it_is_the_same_training_as_in_an_ordinary_loop():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = network()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
    for batch in taught():
        optimizer.zero_grad()
        squares(module(rows(batch)), batch).backward()
        optimizer.step()
    state = run(learner(), taught(), verify=True).state
    for name, tensor in module.state_dict().items():
        assert torch.equal(state[f"module.{name}"], tensor), name
    steps = [value for name, value in state.items() if name.endswith(".exp_avg")]
    assert len(steps) == len(list(module.parameters()))


def test_statistics_of_batches_change_in_update_only():
    model = learner()
    state = model.initialize()
    before = state["module.1.running_mean"].clone()
    outputs = model.compute(state, taught()[0])
    assert torch.equal(state["module.1.running_mean"], before)
    assert int(state["module.1.num_batches_tracked"]) == 0
    state = model.update(state, taught()[0], outputs)
    assert not torch.equal(state["module.1.running_mean"], before)
    assert int(state["module.1.num_batches_tracked"]) == 1


def test_a_query_that_only_asks_is_answered_from_the_state_alone():
    model, batch = learner(), taught()[0]
    state = run(model, taught()).state
    asks = [{"x": query["x"]} for query in batch]
    alone = run(model, [asks], state=state)
    mixed = model.compute(state, [*batch, *asks])
    assert mixed[len(batch) :] == alone.outputs[0]
    assert alone.version == 0
    assert fingerprints("shared", alone.state) == fingerprints("shared", state)


def test_a_state_from_elsewhere_is_copied_and_stays_as_it_is():
    kept = copy_states("shared", run(learner(), taught()[:3]).state)
    as_arrays = {
        name: value.numpy().copy() if isinstance(value, torch.Tensor) else value for name, value in kept.items()
    }
    before = fingerprints("shared", as_arrays)
    ends = {fingerprints("shared", run(learner(), taught()[3:], state=state).state)[""] for state in (kept, as_arrays)}
    assert ends == {fingerprints("shared", run(learner(), taught()).state)[""]}
    assert fingerprints("shared", as_arrays) == before == fingerprints("shared", kept)


def test_tensors_are_changed_in_place_and_say_so():
    model = learner()
    state = run(model, taught()[:1]).state
    places = {name: (value.data_ptr(), value._version) for name, value in state.items() if torch.is_tensor(value)}
    after = run(model, taught()[1:2], state=state).state
    for name, (pointer, version) in places.items():
        assert after[name].data_ptr() == pointer
        assert after[name]._version > version, name  # what a copier may go by


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda state: state.pop("module.0.weight"),
            "the state has no 'module.0.weight'; it was made by another model",
        ),
        (lambda state: state.update({"module.0.bias": torch.zeros(9)}), r"'module.0.bias' is torch.float32 of \(9,\)"),
        (lambda state: state.pop(GROUPS), "the state's 'optimizer.groups' are 0, not 1"),
    ],
)
def test_a_state_of_another_model_is_refused(change, message):
    model = learner()
    state = copy_states("shared", model.initialize())
    change(state)
    with pytest.raises(ModelError, match=message):
        model.compute(state, taught()[0])


def test_an_update_of_another_state_than_was_computed_is_refused():
    model = learner()
    state = model.initialize()
    outputs = model.compute(state, taught()[0])
    with pytest.raises(ModelError, match="this is not the state that compute was given"):
        model.update(dict(state), taught()[0], outputs)


def test_building_a_model_leaves_the_caller_s_random_numbers_alone():
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    learner().initialize()
    assert torch.equal(torch.rand(3), wanted)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.LSTM(1, 4, batch_first=True)

    def forward(self, x, hidden):
        seen, hidden = self.body(x, hidden)
        return seen[:, -1], hidden


def streams():
    return Streams(
        Recurrent,
        lambda: {"h": torch.zeros(1, 1, 4), "c": torch.zeros(1, 1, 4)},
        key=lambda query: query["stream"],
        inputs=lambda batch: torch.tensor([[[query["x"]]] for query in batch]),
        answers=answers,
    )


def heard(names, start=0):
    return [{"stream": name, "x": float(start + number)} for number, name in enumerate(names)]


def test_a_stream_s_hidden_state_is_as_if_it_ran_alone():
    queries = heard("aababbbca")
    (together,) = run(streams(), [queries], verify=True).outputs
    for stream in "abc":
        own = [query for query in queries if query["stream"] == stream]
        alone = [answer["y"] for (answer,) in run(streams(), [[query] for query in own]).outputs]
        mixed = [answer["y"] for answer, query in zip(together, queries, strict=True) if query["stream"] == stream]
        assert mixed == pytest.approx(alone, abs=1e-6)


def test_only_the_batch_s_streams_change():
    found = rehearse("here", streams, [heard("ab"), heard("ca", 3), heard("aa", 5), heard("b", 9)])
    assert (found.kind, found.keys, found.versions, found.repeats) == ("keyed", 3, 4, True)
    first = run(streams(), [heard("abc")])
    before = fingerprints("keyed", first.state)
    kept = first.state["a"]["h"]
    content = kept.clone()
    after = fingerprints("keyed", run(streams(), [heard("ab")], state=first.state).state)
    assert {key for key in after if after[key] != before[key]} == {"a", "b"}
    assert torch.equal(kept, content)  # an update makes new tensors: those of before may be kept without a copy


def test_a_module_with_one_hidden_tensor_is_given_it_alone():
    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.GRUCell(1, 4)

        def forward(self, x, hidden):
            assert isinstance(hidden, torch.Tensor)
            after = self.cell(x, hidden)
            return after, after

    def make():
        return Streams(
            Cell, lambda: {"h": torch.zeros(1, 4)}, key=lambda query: query["stream"], answers=answers, dim=0,
            inputs=lambda batch: torch.tensor([[query["x"]] for query in batch]),
        )  # fmt: skip

    assert rehearse("here", make, [heard("ab"), heard("ba", 2), heard("a", 4)]).keys == 2
