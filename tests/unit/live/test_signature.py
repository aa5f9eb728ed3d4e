import numpy as np
import pytest

from agents.live.stage.intake import Signature
from lineage import reasons
from lineage.errors import WireError

SIGNATURE = Signature({"image": {"dtype": "uint8", "shape": [None, 8, -1]}, "name": {"dtype": "str"}})


def test_what_fits_passes_and_more_may_come():
    SIGNATURE.check({"image": np.zeros((3, 8, 5), np.uint8), "name": "x", "more": 1})


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ({"name": "x"}, "'image' is missing"),
        ({"image": np.zeros((3, 8, 5)), "name": "x"}, "is float64, not uint8"),
        ({"image": np.zeros((3, 7, 5), np.uint8), "name": "x"}, r"shape \[3, 7, 5\], not \[None, 8, None\]"),
        ({"image": np.zeros((8, 5), np.uint8), "name": "x"}, "has shape"),
        ({"image": np.zeros((3, 8, 5), np.uint8), "name": 3}, "is int, not str"),
        ({"image": "no tensor", "name": "x"}, "is str, not uint8"),
    ],
)
def test_what_does_not_fit_is_named(inputs, says):
    with pytest.raises(WireError, match=says) as caught:
        SIGNATURE.check(inputs)
    assert caught.value.reason == reasons.BAD_INPUT
