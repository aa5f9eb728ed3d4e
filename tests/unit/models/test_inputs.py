"""What a model is given of a query."""

import pytest

from spillway.agents.models.inputs import Inputs
from spillway.agents.workers.shim import Query


@pytest.mark.parametrize("made", [Inputs, Query], ids=["in Spillway", "in an interpreter of its own"])
def test_an_input_that_a_query_does_not_have_is_named_with_those_that_it_has(made):
    joined = made({"left.y": 1, "right.x": 2}, {}, "r", "k")
    with pytest.raises(KeyError, match=r"y: the query has left\.y, right\.x"):
        joined["y"]
    assert (joined.get("y"), "y" in joined) == (None, False)
    with pytest.raises(KeyError, match="x: the query has no inputs"):
        made({}, {}, "r", "k")["x"]
    with pytest.raises(KeyError, match=r"n19, \.\.\.'$"):
        made({f"n{number}": 0 for number in range(30)}, {}, "r", "k")["x"]
