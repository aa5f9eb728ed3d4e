"""The models of the runs keep the contract, and tell one history from another."""

import pytest

from agents.models.inputs import Inputs
from agents.models.state import fingerprint
from agents.models.stateful import run
from lineage.errors import UsageError
from tests.torture import arming
from tests.torture.models import Chain, Dice, Through, Users


def batches(*groups):
    return [[Inputs({"x": number}, {}, f"q{number}") for number in group] for group in groups]


@pytest.mark.parametrize("model", [Chain, Users])
def test_the_same_batches_give_the_same_and_another_order_gives_another_state(model):
    once, again = (run(model(), batches((1, 2), (8, 9)), verify=True) for _ in range(2))
    assert once.outputs == again.outputs
    assert fingerprint(once.state) == fingerprint(again.state)
    other = run(model(), batches((2, 9), (8, 1)))
    assert fingerprint(other.state) != fingerprint(once.state)


def test_how_queries_are_put_into_batches_makes_no_difference():
    assert fingerprint(run(Chain(), batches((1, 2, 3))).state) == fingerprint(run(Chain(), batches((1,), (2, 3))).state)


def test_a_large_state_changes_by_a_block_for_each_query():
    before, after = run(Chain(64), []).state, run(Chain(64), batches((1,))).state
    assert before["ballast"].nbytes == 64 << 10
    assert (before["ballast"] != after["ballast"]).sum() == 512


def test_dice_never_fall_alike():
    one, other = (run(Dice(), batches((1, 2))) for _ in range(2))
    assert one.outputs != other.outputs
    assert fingerprint(one.state) != fingerprint(other.state)


def test_what_passes_through_stays_the_same():
    assert Through().predict([{"x": 1}]) == [{"x": 1}]


def test_an_order_is_taken_once_and_by_the_process_that_it_is_for(tmp_path, monkeypatch):
    armed = []
    monkeypatch.setattr(arming, "arm", armed.append)
    arming.give_order(tmp_path, "a.1", "before-claim:1")
    monkeypatch.setattr("sys.argv", ["spillway", "serve", "--stage", "a", "--replica", "0"])
    Chain(orders=str(tmp_path))
    assert armed == []
    monkeypatch.setattr("sys.argv", ["spillway", "serve", "--stage", "a", "--replica", "1"])
    Chain(orders=str(tmp_path))
    Chain(orders=str(tmp_path))
    assert armed == ["before-claim:1"]


def test_an_order_that_means_nothing_is_refused(tmp_path, monkeypatch):
    arming.give_order(tmp_path, "a.1", "before-breakfast")
    monkeypatch.setattr("sys.argv", ["--stage", "a", "--replica", "1"])
    with pytest.raises(UsageError, match="before-breakfast"):
        Users(orders=str(tmp_path))
