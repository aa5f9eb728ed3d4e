"""Crash points: none by default; an armed one ends the process at its time, by SIGKILL."""

import signal
import subprocess
import sys

import pytest

from agents.live.states import crash_points
from lineage.errors import UsageError
from tests.crash_points import NAMES, arm


def run(program):
    return subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=600)


def test_an_armed_point_ends_the_process_when_it_was_passed_so_often():
    program = (
        "from agents.live.states.crash_points import at\n"
        "from tests.crash_points import arm\n"
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
    for name in NAMES:
        crash_points.at(name)


@pytest.mark.parametrize("text", ["nowhere", "before-manifest:", "before-manifest:0", "before-manifest:-1", ":1"])
def test_what_names_no_point_is_refused(text):
    with pytest.raises(UsageError):
        arm(text)


def test_an_empty_text_disarms():
    arm("after-ack")
    arm("")
    crash_points.at("after-ack")
