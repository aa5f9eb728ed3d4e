"""What dead processes leave behind of what they had under way, and when it goes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from agents.live.stage.guard import UnderWay, folder_of, of_the_dead

DIES = """
import os, sys
from pathlib import Path
from agents.live.stage.guard import UnderWay
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


def died_with(folder, *places, most=8):
    """What a process leaves that has died with these under way."""
    way = UnderWay(folder, 1, most)
    way.begin(0, places)
    killed(way)
    return way


def test_a_process_that_ends_itself_leaves_what_it_ran(folder):
    ended = subprocess.run([sys.executable, "-c", DIES, str(folder)], check=False, env={**os.environ})
    assert ended.returncode == 9
    assert of_the_dead(folder, {}) == [frozenset({(3, 2**40), (0, 8)})]


def test_one_that_lives_has_not_died_of_anything(folder):
    way = UnderWay(folder, 1, 8)
    way.begin(0, [(0, 1)])
    assert of_the_dead(folder, {}) == []
    killed(way)
    assert of_the_dead(folder, {}) == [frozenset({(0, 1)})]


def test_one_that_ends_in_order_leaves_nothing(folder):
    way = UnderWay(folder, 1, 8)
    way.begin(0, [(0, 1)])
    way.end(0)
    way.close()
    assert list(folder.iterdir()) == []


def test_one_that_ends_itself_as_its_model_hangs_leaves_what_it_ran(folder):
    way = UnderWay(folder, 1, 8)
    way.begin(0, [(0, 1)])
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
    way = UnderWay(folder, 1, 8)
    way.begin(0, [(0, 7)])
    way.end(0)
    killed(way)
    assert of_the_dead(folder, {}) == []
    assert list(folder.iterdir()) == []


def test_of_a_batch_that_is_too_large_the_first_ones_are_known(folder):
    died_with(folder, (0, 1), (0, 2), (0, 3), most=2)
    assert of_the_dead(folder, {}) == [frozenset({(0, 1), (0, 2)})]


def test_files_are_bounded_and_the_newest_stay(folder, monkeypatch):
    monkeypatch.setattr("agents.live.stage.guard._MOST_FILES", 3)
    for offset in range(5):
        died_with(folder, (0, offset))
    assert of_the_dead(folder, {}) == [frozenset({(0, offset)}) for offset in (4, 3, 2)]
    assert len(list(folder.iterdir())) == 3


def test_foreign_files_are_passed_over(folder):
    folder.mkdir(parents=True)
    (folder / "1-2").write_bytes(b"x")
    (folder / "notes").write_bytes(b"")
    assert of_the_dead(folder, {}) == []
