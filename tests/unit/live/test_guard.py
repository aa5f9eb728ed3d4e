"""Models that end or hang their process: noted while they run, named when they hang, run alone when it is known."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from agents.core.actions import Failed, Ok
from agents.core.deaths import Deaths
from agents.live.stage import guard as module
from agents.live.stage.batch_work import BatchWork
from agents.live.stage.guard import Guard
from lineage import reasons
from lineage.limits import Limits
from tests.unit.live.test_batch_work import functions, request, square


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(monotonic=lambda: now.at, at=100.0)
    monkeypatch.setattr(module, "time", now)
    return now


def run(guard, predict, count):
    work = BatchWork(
        "s", [SimpleNamespace(predict=predict)], functions(), joins=False, model_name="m", version="", signature=None,
        limits=Limits(), guard=guard,
    )  # fmt: skip
    return work.run(0, SimpleNamespace(requests=[request(n) for n in range(count)])).results


def test_what_runs_is_noted_call_by_call_and_taken_back(tmp_path):
    noted = []
    guard = Guard("s", folder=tmp_path, most=8)

    def predict(batch):
        (file,) = tmp_path.iterdir()
        noted.append(module._places(file.read_bytes()))
        if len(batch) > 1:
            raise ValueError("one by one")
        return square(batch)

    run(guard, predict, 2)
    assert noted == [{(0, 0), (0, 1)}, {(0, 0)}, {(0, 1)}]
    guard.close()
    assert list(tmp_path.iterdir()) == []


def test_a_batch_that_hangs_is_named_by_its_records(clock):
    guard = Guard("s", timeout=30.0)
    with guard.running(0, [request(n) for n in range(7)]):
        clock.at += 30.0
        assert guard.hung() is None
        clock.at += 0.1
        error = str(guard.hung())
    assert guard.hung() is None
    assert "'s'" in error
    assert "in[0] offset 0 ('r0')" in error
    assert "offset 4 ('r4'), .." in error
    assert "30 s" in error


def test_records_in_a_long_batch_are_told_to_the_watchdog(clock):
    guard = Guard("s", slots=2)
    assert guard.busy == set()
    with guard.running(1, [request(3), request(4)]):
        assert guard.busy == set()
        clock.at += 1.0
        assert guard.busy == {(0, 3), (0, 4)}
    assert guard.busy == set()


def test_a_record_fails_only_after_it_died_alone():
    calls = []

    def predict(batch):
        calls.append([query["x"] for query in batch])
        return square(batch)

    guard, both, alone = Guard("s"), frozenset({(0, 1), (0, 2)}), frozenset({(0, 1)})
    guard.deaths = Deaths([both, both, alone])
    assert [type(result) for result in run(guard, predict, 3)] == [Ok] * 3
    assert calls == [[1], [2], [0]]
    guard.deaths = Deaths([both, both, alone, alone])
    results = run(guard, predict, 3)
    assert [type(result) for result in results] == [Ok, Failed, Ok]
    assert results[1].reason == reasons.MODEL_DIED
    assert "in[0] offset 1: 4 processes of stage 's' ended with it" in results[1].text
    assert calls[3:] == [[2], [0]]
