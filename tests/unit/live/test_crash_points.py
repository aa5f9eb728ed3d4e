"""Crash points: none by default; an armed one ends the process at its time, by SIGKILL."""

import signal
import subprocess
import sys

import pytest

from agents.live.states import crash_points
from lineage.errors import UsageError


def run(program):
    return subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=600)


def test_an_armed_point_ends_the_process_when_it_was_passed_so_often():
    program = (
        "from agents.live.states.crash_points import arm, at\n"
        "arm('before-manifest:3')\n"
        "for turn in range(5):\n"
        "    at('after-manifest')\n"
        "    print(turn, flush=True)\n"
        "    at('before-manifest')\n"
    )
    ended = run(program)
    assert ended.returncode == -signal.SIGKILL
    assert ended.stdout.split() == ["0", "1", "2"]


def test_without_one_nothing_happens():
    for name in crash_points.NAMES:
        crash_points.at(name)


@pytest.mark.parametrize("text", ["nowhere", "before-manifest:", "before-manifest:0", "before-manifest:-1", ":1"])
def test_what_names_no_point_is_refused(text):
    with pytest.raises(UsageError):
        crash_points.arm(text)


def test_an_empty_text_disarms():
    crash_points.arm("after-ack")
    crash_points.arm("")
    crash_points.at("after-ack")


class Lasting:
    """A file that is there for so many looks."""

    def __init__(self, looks):
        self.left = looks

    def exists(self):
        self.left -= 1
        return self.left >= 0


def test_who_comes_by_a_held_point_waits_while_the_file_is_there(monkeypatch):
    waited, file = [], Lasting(3)
    monkeypatch.setattr(crash_points.time, "sleep", waited.append)
    crash_points.hold("before-chunks", file)
    try:
        crash_points.at("after-ack")
        assert file.left == 3
        crash_points.at("before-chunks")
        assert len(waited) == 3
    finally:
        crash_points.hold("before-chunks", None)
    crash_points.at("before-chunks")
    assert len(waited) == 3


def test_a_point_that_there_is_not_cannot_be_held(tmp_path):
    with pytest.raises(UsageError, match="no crash point"):
        crash_points.hold("nowhere", tmp_path)
