"""An ensemble that is served: a member that is killed and one that is slow cost answers of theirs, and no query's."""

import os
import signal
import time

import psutil

from tests.worker_processes import workers_of

PIPELINE = """
partitions: 4
stages:
  - name: f
    default: {label: 99}
    ensemble:
      selection: exp4
      wait: 300ms
      threshold: .3
      members:
        killed: {model: "members:Member", arguments: {say: killed}}
        sound: {model: "members:Member", arguments: {say: sound}, workers: {count: 2}}
        slow: {model: "members:Member", arguments: {say: slow, pause: 2.0}}
"""
MEMBERS = """
import time


class Member:
    def __init__(self, say, pause=0.0):
        self.pause = pause

    def predict(self, batch):
        time.sleep(self.pause)
        return [{"label": query["x"] % 7, "more": 1} for query in batch]
"""


def worker_of(process, member):
    """The worker process of a member; None while it has none."""
    return next(iter(workers_of(process, f'"say": "{member}"')), None)


def test_a_member_that_is_killed_and_one_that_is_slow_cost_no_query(stage, until):
    one = stage(PIPELINE)
    (one.folder / "members.py").write_text(MEMBERS)
    process = psutil.Process(one.start("f").pid)
    until(lambda: one.metrics("f").get("spillway_ready") or worker_of(process, "slow") is not None)
    out = one.reader("outcomes")
    killed = None
    for number in range(200):
        one.send(f"q{number}", {"x": number}, key=f"k{number}".encode())
        if number == 0:
            one.flush()
            out.wait(1)
        if number == 100:
            killed = worker_of(process, "killed").pid
            os.kill(killed, signal.SIGKILL)
        time.sleep(0.01)
    one.flush()
    until(lambda: (again := worker_of(process, "killed")) is not None and again.pid != killed)
    told = out.answers(200)
    members = {}
    for number in range(200):
        outcome = told[f"q{number}"]
        assert outcome.kind == "prediction", outcome
        assert outcome.outputs == {"label": number % 7}
        flags = members[number] = outcome.flags["f"]
        answers = [each["answer"] for each in flags["members"].values() if "answer" in each]
        assert answers
        assert set(answers) == {number % 7}
        assert abs(flags["confidence"] - len(answers) / len(flags["members"])) < 0.01
    assert any("answer" not in flags["members"].get("slow", {}) for flags in members.values())
    assert any("answer" in flags["members"].get("killed", {}) for flags in members.values())
    until(lambda: one.committed("f") == one.ends())
    metrics = one.metrics("f")
    assert metrics["spillway_combined_total"] == 200
    assert metrics["spillway_partial_total"] > 0
