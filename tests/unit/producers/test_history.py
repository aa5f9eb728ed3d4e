"""What a recording says of each query."""

import pytest

from spillway.lineage.errors import UsageError
from spillway.lineage.limits import DEFAULT_LIMITS
from spillway.lineage.message import StageTiming
from spillway.producers.recording import read_recording
from spillway.producers.recording.history import history
from tests.unit.whatif.recordings import Taken

CHAIN = {"a": (), "b": ("a",)}


def read(path, predecessors=None):
    return history(read_recording(path), predecessors or CHAIN, DEFAULT_LIMITS)


def test_the_longest_path_explains_a_latency(tmp_path):
    with Taken(tmp_path / "r", "spec") as taken:
        taken.query("q", 0.0)
        long, short = StageTiming("b", 0, 0, 0.5, 1), StageTiming("c", 0, 0, 0.1, 1)
        taken.outcome("q", 0.64, [StageTiming("a", 0, 0, 0.1, 1), long, short])
    found = read(tmp_path / "r", {"a": (), "b": ("a",), "c": ("a",)})
    assert found.hop.tolist() == pytest.approx([0.04 / 3], abs=1e-6)


def test_a_senders_clock_that_is_off_is_not_believed(tmp_path):
    with Taken(tmp_path / "r", "spec") as taken:
        taken.query("right", 0.0)
        taken.query("hour", 3600.0, appended=1.0)
        taken.outcome("hour", 1.25, [])
    found = read(tmp_path / "r")
    assert found.due.tolist() == [0, 1]
    assert found.latency[1] == pytest.approx(0.25)


def test_repetitions_strays_and_garbage_are_left_out(tmp_path):
    with Taken(tmp_path / "r", "spec") as taken:
        taken.outcome("before", 0.0, [])
        taken.query("q", 1.0)
        taken.query("q", 2.0)
        taken.outcome("q", 1.5, [])
        taken.outcome("q", 9.0, [])
        taken.garbage()
    found = read(tmp_path / "r")
    assert len(found.due) == 1
    assert found.latency.tolist() == pytest.approx([0.5])
    assert found.unreadable == 1


def test_choices_are_counted(tmp_path):
    with Taken(tmp_path / "r", "spec") as taken:
        for number, chosen in enumerate([("b",), ("b",), (), ("b", "c")]):
            taken.query(f"q{number}", 0.1 * number)
            taken.outcome(f"q{number}", 1.0, [], path={"a": chosen})
    found = read(tmp_path / "r")
    assert found.choices == {"a": {"b": 2, "": 1, "b+c": 1}}
    assert found.until(0.25).paths == [{"a": ("b",)}, {"a": ("b",)}, {"a": ()}]


def test_the_first_seconds_alone(tmp_path):
    with Taken(tmp_path / "r", "spec") as taken:
        for number in range(4):
            taken.query(f"q{number}", float(number))
    found = read(tmp_path / "r")
    assert found.until(2.5).due.tolist() == [0, 1, 2]
    assert len(found.until(2.5).lost_at) == 3
    with pytest.raises(UsageError, match="no query came within the first 0 s"):
        found.until(0)


def test_a_recording_without_queries_says_what_to_do(tmp_path):
    with Taken(tmp_path / "r", "spec") as taken:
        taken.outcome("q", 0.0, [])
    with pytest.raises(UsageError, match="record while the pipeline is in use"):
        read(tmp_path / "r")
