"""A state from the log goes to the devices on which `initialize` has its tensors; "meta" plays the GPU."""

import numpy as np
import torch

from spillway.agents.models.placement import Placement


def placed(initial, state, *, keyed=False):
    placement = Placement()
    placement.learn_from(initial)
    return placement.put(state, keyed=keyed)


def devices(state):
    return {name: leaf.device.type for name, leaf in state.items() if isinstance(leaf, torch.Tensor)}


def meta(*shape):
    return torch.zeros(*shape, device="meta")


def test_tensors_go_where_initialize_has_them_by_name():
    put = placed({"w": meta(3), "host": torch.zeros(2)}, {"w": torch.ones(3), "host": torch.ones(2), "n": 4})
    assert devices(put) == {"w": "meta", "host": "cpu"}
    assert put["n"] == 4


def test_what_initialize_does_not_make_goes_where_all_are_if_that_is_one_place():
    state = {"w": torch.ones(3), "moments": torch.ones(3), "step": torch.tensor(1.0), "kept": np.ones(2)}
    initial = {"w": meta(3), "count": torch.tensor(0)}
    assert devices(placed(initial, state)) == {"w": "meta", "moments": "meta", "step": "cpu"}
    put = placed({"w": meta(3), "host": torch.zeros(2)}, state)
    assert devices(put) == {"w": "meta", "moments": "cpu", "step": "cpu"}
    assert put["kept"] is state["kept"]


def test_nested_names_are_kept():
    state = {"layers": [{"w": torch.ones(3)}, (torch.ones(1), 2)]}
    put = placed({"layers": [{"w": meta(3)}, (meta(1), 2)]}, state)
    assert put["layers"][0]["w"].device.type == put["layers"][1][0].device.type == "meta"
    assert type(put["layers"][1]) is tuple


def test_of_a_keyed_state_each_keys_is_put():
    put = placed({"h": meta(2)}, {"a": {"h": torch.ones(2)}, "b": {"h": torch.ones(2)}}, keyed=True)
    assert [devices(each) for each in put.values()] == [{"h": "meta"}] * 2


def test_where_no_gpu_is_in_use_initialize_is_not_called_and_the_state_is_the_same_object(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    placement, state = Placement(), {"w": torch.ones(3)}
    placement.learn(None)
    assert placement.put(state, keyed=False) is state


def test_initialize_is_called_once(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)

    class Model:
        calls = 0

        def initialize(self):
            self.calls += 1
            return {"w": meta(3)}

    placement, model = Placement(), Model()
    placement.learn(model)
    placement.learn(model)
    assert model.calls == 1
    assert devices(placement.put({"w": torch.ones(3)}, keyed=False)) == {"w": "meta"}
