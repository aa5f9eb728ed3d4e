"""The models of the ensemble's example: each learns, and one is broken only while its switch is there."""

import numpy as np
import pytest

from examples.selection.models import Digits
from examples.selection.training import queries

ROWS, TRUTHS = queries(300, seed=2, noise=0.1)
BATCH = [{"x": row} for row in ROWS]


def wrong(model):
    return float(np.mean([out["label"] != truth for out, truth in zip(model.predict(BATCH), TRUTHS, strict=True)]))


@pytest.mark.parametrize("kind", ["linear", "forest"])
def test_a_model_is_broken_in_view_and_recovers(kind, tmp_path):
    switch = tmp_path / "broken"
    model = Digits(kind, digits=300, broken=str(switch))
    assert wrong(model) < 0.2
    switch.touch()
    assert wrong(model) > 0.8
    switch.unlink()
    assert wrong(model) < 0.2


def test_a_tail_takes_its_share_of_the_batches(monkeypatch):
    slept = []
    monkeypatch.setattr("time.sleep", slept.append)
    model = Digits("linear", digits=300, tail=0.1, sleep=0.5)
    for _ in range(300):
        model.predict(BATCH[:1])
    assert 10 <= len(slept) <= 60
    assert set(slept) == {0.5}
