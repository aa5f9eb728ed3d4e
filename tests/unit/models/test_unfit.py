"""States that a model cannot go on from are refused, where the model has promised what its states are like."""

from __future__ import annotations

import numpy as np
import pytest

from agents.models.unfit import UnfitStateError, refuse_unfit
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
