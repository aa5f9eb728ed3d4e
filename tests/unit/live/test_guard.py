"""Models that end or hang their process: noted while they run, named when they hang, run alone when it is known."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from spillway.agents.core.actions import Failed, Ok
from spillway.agents.core.crash_suspects import Crashes
from spillway.agents.live.stage import crash_watch as module
from spillway.agents.live.stage.crash_watch import CrashWatch, UnderWay, folder_of, of_the_dead
from spillway.lineage import reasons
from tests.unit.live import test_batch_work
from tests.unit.live.test_batch_work import request, square


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(monotonic=lambda: now.at, at=100.0)
    monkeypatch.setattr(module, "time", now)
    return now


def run(guard, predict, count):
    return test_batch_work.run(predict, [request(n) for n in range(count)], guard=guard)


def test_what_runs_is_noted_call_by_call_and_taken_back(tmp_path):
    noted = []
    guard = CrashWatch("s", folder=tmp_path, most=8)

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
    guard = CrashWatch("s", timeout=30.0)
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
    guard = CrashWatch("s", slots=2)
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

    guard, both, alone = CrashWatch("s"), frozenset({(0, 1), (0, 2)}), frozenset({(0, 1)})
    guard.deaths = Crashes([both, both, alone])
    assert [type(result) for result in run(guard, predict, 3)] == [Ok] * 3
    assert calls == [[1], [2], [0]]
    guard.deaths = Crashes([both, both, alone, alone])
    results = run(guard, predict, 3)
    assert [type(result) for result in results] == [Ok, Failed, Ok]
    assert results[1].reason == reasons.MODEL_DIED
    assert "in[0] offset 1: 4 processes of stage 's' ended while they ran it" in results[1].text
    assert calls[3:] == [[2], [0]]


# What dead processes leave behind of what they had under way, and when it goes.

DIES = """
import os, sys
from pathlib import Path
from spillway.agents.live.stage.crash_watch import UnderWay
way = UnderWay(Path(sys.argv[1]), 2, 8)
way.begin(0, [(0, 1)])
way.end(0)
way.begin(1, [(3, 2**40), (0, 8)])
os._exit(9)
"""


@pytest.fixture
def folder(tmp_path):
    return folder_of(tmp_path, "p", "s")


def killed(way):
    """Do what the kernel does at a process's end."""
    way._map.close()
    way._file.close()


def running(folder, *places, most=8):
    """What a process has under way."""
    way = UnderWay(folder, 1, most)
    way.begin(0, places)
    return way


def died_with(folder, *places, most=8):
    """Leave what a process leaves that has died with these under way."""
    killed(running(folder, *places, most=most))


def test_a_process_that_ends_itself_leaves_what_it_ran(folder):
    ended = subprocess.run([sys.executable, "-c", DIES, str(folder)], check=False, env={**os.environ})
    assert ended.returncode == 9
    assert of_the_dead(folder, {}) == [frozenset({(3, 2**40), (0, 8)})]


def test_one_that_lives_has_not_died_of_anything(folder):
    way = running(folder, (0, 1))
    assert of_the_dead(folder, {}) == []
    killed(way)
    assert of_the_dead(folder, {}) == [frozenset({(0, 1)})]


def test_one_that_ends_in_order_leaves_nothing(folder):
    way = running(folder, (0, 1))
    way.end(0)
    way.close()
    assert list(folder.iterdir()) == []


def test_one_that_ends_itself_as_its_model_hangs_leaves_what_it_ran(folder):
    way = running(folder, (0, 1))
    way.close()
    assert of_the_dead(folder, {}) == [frozenset({(0, 1)})]


def test_what_is_committed_is_forgotten_and_files_that_say_nothing_go(folder):
    died_with(folder, (0, 7), (1, 7))
    died_with(folder, (0, 6))
    assert sorted(of_the_dead(folder, {0: 8}), key=len) == [frozenset({(1, 7)})]
    assert len(list(folder.iterdir())) == 1
    assert of_the_dead(folder, {2: 100}) == [frozenset({(0, 7), (1, 7)})]  # those of others are theirs to judge
    assert of_the_dead(folder, {0: 8, 1: 8}) == []
    assert list(folder.iterdir()) == []


def test_one_that_died_between_two_batches_says_nothing(folder):
    way = running(folder, (0, 7))
    way.end(0)
    killed(way)
    assert of_the_dead(folder, {}) == []
    assert list(folder.iterdir()) == []


def test_of_a_batch_that_is_too_large_the_first_ones_are_known(folder):
    died_with(folder, (0, 1), (0, 2), (0, 3), most=2)
    assert of_the_dead(folder, {}) == [frozenset({(0, 1), (0, 2)})]


def test_files_are_bounded_and_the_newest_stay(folder, monkeypatch):
    monkeypatch.setattr("spillway.agents.live.stage.crash_watch._MOST_FILES", 3)
    for offset in range(5):
        died_with(folder, (0, offset))
    assert of_the_dead(folder, {}) == [frozenset({(0, offset)}) for offset in (4, 3, 2)]
    assert len(list(folder.iterdir())) == 3


def test_foreign_files_are_passed_over(folder):
    folder.mkdir(parents=True)
    (folder / "1-2").write_bytes(b"x")
    (folder / "notes").write_bytes(b"")
    assert of_the_dead(folder, {}) == []


def test_files_of_others_in_the_folder_are_let_be(tmp_path):
    for name in ("1-2.bak", "2026-11-28", "1-2 (copy)", "notes-3"):
        (tmp_path / name).write_text("somebody's")
    assert of_the_dead(tmp_path, {}) == []
    assert len(list(tmp_path.iterdir())) == 4
