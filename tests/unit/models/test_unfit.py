"""States that a model cannot go on from are refused, where the model has promised what its states are like."""

from __future__ import annotations

import numpy as np
import pytest

from agents.models.placement import UnfitStateError, refuse_unfit
from checkpoint.state import flatten


class Weights:
    fixed_state = True

    def initialize(self):
        return {"w": np.zeros((3, 4), np.float32), "steps": 0, "layers": [np.zeros(2), {"b": np.ones(1, np.int64)}]}


class Grows(Weights):
    fixed_state = False


def state(**changed):
    return {**Weights().initialize(), **changed}


@pytest.mark.parametrize("more", [{}, {"steps": 17}, {"steps": "another value"}, {"momentum": np.zeros(9)}])
def test_what_the_model_makes_and_what_comes_to_it_fits(more):
    refuse_unfit("p", Weights(), flatten(state(**more)).entries)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"w": np.zeros((5, 4), np.float32)},
            r"'w' is numpy float32 \[5, 4\], but the model has .* \[3, 4\]",
        ),
        ({"w": np.zeros((3, 4))}, r"'w' is numpy float64 \[3, 4\]"),
        ({"w": 3}, "'w' is"),
        ({"layers": [np.zeros(2)]}, "missing, but the model has numpy int64"),
    ],
)
def test_what_another_model_made_is_refused(changed, said):
    with pytest.raises(UnfitStateError, match=f"^p: the state in the log is not one of Weights: .*{said}") as caught:
        refuse_unfit("p", Weights(), flatten(state(**changed)).entries)
    assert caught.value.exit_code == 2
    refuse_unfit("p", Grows(), flatten(state(**changed)).entries)


class Plain:
    """Says nothing of its states. Each update adds `n` to the first array, and `wide` more numbers to it."""

    wide, reads_only = 0, False

    def initialize(self):
        return {"w": np.zeros(3)}

    def compute(self, _state, batch):
        return [{} for _ in batch]

    def update(self, state, batch, _outputs):
        return {"w": np.append(state["w"] + batch[0]["n"], [0.0] * self.wide), "n": np.ones(1)}

    def reads(self, _query):
        return self.reads_only

    def example(self):
        return {"n": 1.0}


class Keyed(Plain):
    def key(self, query):
        return query.key

    def update(self, states, batch, outputs):
        return {key: super(Keyed, self).update(state, batch, outputs) for key, state in states.items()}


@pytest.mark.parametrize("kind", [Plain, Keyed])
def test_an_update_with_its_example_shows_what_a_plain_models_states_are_like(kind):
    refuse_unfit("p", kind(), flatten({"w": np.zeros(3)}).entries)
    with pytest.raises(UnfitStateError, match=r"'w' is numpy float64 \[5\].* says 'fixed_state = False'"):
        refuse_unfit("p", kind(), flatten({"w": np.zeros(5)}).entries)


@pytest.mark.parametrize(
    "shown", [{"wide": 1}, {"reads_only": True}, {"fixed_state": False}, {"example": None}, {"example": lambda: [{}]}]
)
def test_nothing_is_refused_where_the_trial_shows_nothing(shown):
    model = Plain()
    for name, value in shown.items():
        setattr(model, name, value)
    refuse_unfit("p", model, flatten({"w": np.zeros(5)}).entries)
