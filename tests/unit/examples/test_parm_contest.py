"""Strategies that are compared have the same workers, and differ in nothing but what is beside them."""

import pytest

from examples.parm.contest import SLOTS, STRATEGIES, WORKERS, write
from spillway.topology.load import load


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategy_has_as_many_workers_as_there_are_slots(tmp_path, strategy):
    (stage,) = load(write(tmp_path, strategy, "p")).spec.stages
    own, coding, copies = stage.workers.count, stage.coding, stage.copies
    beside = own // coding.k if coding else copies.workers if copies else 0
    assert own + beside == (WORKERS if strategy == "none" else SLOTS)
    assert (coding is not None) == (strategy in {"coded", "coded-shared"})
    assert (stage.workers.where, stage.batching.most) == ("process", 1)
