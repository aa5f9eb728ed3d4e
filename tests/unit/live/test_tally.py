"""What a stage's batches and messages add to its metrics."""

from types import SimpleNamespace

import pytest

from agents.core.actions import DROPPED, Emit, EmitKind, Loss
from agents.core.request import Request
from agents.core.workers import Batch
from agents.live.metrics import StageMetrics
from agents.live.stage.batch_work import Executed
from agents.live.stage.tally import Tally


def request(**times):
    return Request("q", 0, 0.0, **{"deadline": 2.0, "arrived": 1.0, "parts": (), "path": {}, **times})


def test_a_batch_is_counted_with_its_budgets_and_held_to_what_was_told():
    metrics = StageMetrics("p", "s", 0)
    tally = Tally(metrics)
    metrics.calibration.told(0.1, 0.1, 0.1)
    one = request(entered=1.25, started=1.5)
    tally.executed(1.75, Batch(0, [one], 1.5, 1.75), Executed([], 0.25))
    assert (metrics.batches, metrics.batched, metrics.busy) == (1, 1, 0.25)
    assert metrics.budgets.left["kept"].total == pytest.approx(0.75)
    assert metrics.budgets.consumption.total == pytest.approx(0.75)
    assert metrics.calibration.happened_total["visit"] == pytest.approx(0.75)


def test_a_drop_told_to_several_joins_is_one_refusal():
    metrics = StageMetrics("p", "s", 0)
    tally = Tally(metrics)
    gone = request()
    loss = Loss(DROPPED, "too-late", "", 0.5)
    for kind, destination in ((EmitKind.TOMBSTONE, "j"), (EmitKind.OUTCOME, None)):
        tally.emitted(1.8, Emit(kind, destination, None, {}, None, gone, None, ("s",), loss))
    assert metrics.budgets.left["refused"].count == 1
    assert metrics.budgets.left["refused"].total == pytest.approx(0.2)
    assert metrics.budgets.shortfall.total == 0.5
    assert metrics.outcomes["dropped", "too-late"] == 2


def test_what_an_unreporting_policy_does_not_tell_is_observed():
    seen = SimpleNamespace(delays=[], waits=[])
    batch = Batch(0, [request(entered=1.25, started=1.5)], 1.5, 2.0)
    Tally(StageMetrics("p", "s", 0), seen).executed(2.0, batch, Executed([], 0.5))
    assert (seen.delays, seen.waits) == ([0.25], [0.25])
