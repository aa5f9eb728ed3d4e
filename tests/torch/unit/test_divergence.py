"""A replay of a learner whose sums come in an order of chance does not come back to where it was."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from examples.stateful import divergence, labelling  # noqa: E402
from examples.stateful.divergence import compare, experiment, rounded, table  # noqa: E402


@pytest.fixture(autouse=True)
def glyphs(monkeypatch):
    rng = np.random.default_rng(1)
    made = (rng.random((100, 8, 8)) < 0.4) * 255.0, np.arange(100) % 10
    monkeypatch.setattr(labelling, "digits", lambda: made)


def test_in_an_order_of_chance_every_replay_ends_elsewhere():
    rows = experiment((1, 3), 2, warm=1)
    assert [(row.interval, row.repeats) for row in rows] == [(1, 2), (3, 2)]
    assert rows[1].apart == 2
    assert rows[1].distance > 0
    assert "batches since  repeats  conflicts" in table(rows)


def test_in_the_batch_s_order_a_replay_ends_where_it_was():
    (row,) = experiment((3,), 1, ordered=True, warm=1)
    assert (row.conflicts, row.pictures, row.eight_bit, row.apart, row.distance) == (0, 0, 0, 0, 0.0)


def test_what_differs_is_counted():
    tested = labelling.pictures(20, 3, taught=False)
    one = divergence.Unordered(ordered=True).initialize()
    other = {name: value.clone() if torch.is_tensor(value) else value for name, value in one.items()}
    assert not compare(one, other, tested).conflicts
    other["module.body.9.bias"][3] += 100
    found = compare(one, other, tested)
    assert found.eight_bit
    assert found.distance == pytest.approx(100)
    assert found.conflicts[0].endswith("and became a 3 (1.0000)")


@pytest.mark.parametrize(("value", "wanted"), [(1.0, 1.0), (1.001, 1.0), (257.0, 256.0), (1.01, 1.0078125), (0.0, 0.0)])
def test_a_loss_is_rounded_to_eight_significant_bits(value, wanted):
    assert rounded(value) == wanted
