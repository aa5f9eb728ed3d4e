"""How long a Kafka that starts is waited for."""

import subprocess
import sys

import psutil
import pytest

from spillway.agents.broker import EmbeddedCluster, embedded
from spillway.agents.broker.embedded import EmbeddedBroker
from spillway.agents.broker.folder import DataFolder, RunningBroker


@pytest.fixture
def broker(tmp_path, monkeypatch):
    """A broker whose process stands still; `sleep` lets seconds pass, and calls `does` at each."""
    made = EmbeddedBroker(tmp_path / "kafka", start_timeout=60.0)
    made.folder.path.mkdir(parents=True)
    made.folder.log.parent.mkdir(parents=True, exist_ok=True)
    made.folder.log.write_text("")
    made._child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    made._running = RunningBroker(made._child.pid, psutil.Process(made._child.pid).create_time(), 1)
    made.now, made.does, made.answers_at = 0.0, lambda _now: None, float("inf")

    def sleep(_seconds):
        made.now += 1.0
        made.does(made.now)

    monkeypatch.setattr(embedded.time, "monotonic", lambda: made.now)
    monkeypatch.setattr(embedded.time, "sleep", sleep)
    monkeypatch.setattr(RunningBroker, "listens", lambda _self: True)
    monkeypatch.setattr(embedded, "kafka_answers", lambda _port: made.now >= made.answers_at)
    yield made
    made._child.kill()
    made._child.wait()
    made._child.stdin.close()


def test_a_kafka_that_does_nothing_is_given_up(broker):
    assert "did nothing, for 60 s" in broker.await_answer()
    assert broker.now < 65


def test_a_kafka_that_recovers_its_log_is_waited_for(broker):
    def log(now):
        if now % 50 == 0:
            with broker.folder.log.open("a") as file:
                file.write("recovering a segment\n")

    broker.does, broker.answers_at = log, 500.0
    assert broker.await_answer() is None


def test_a_kafka_that_computes_is_waited_for(broker, monkeypatch):
    monkeypatch.setattr(psutil.Process, "cpu_times", lambda _self: (broker.now / 5, 0.0))
    broker.answers_at = 500.0
    assert broker.await_answer() is None
    monkeypatch.setattr(psutil.Process, "cpu_times", lambda _self: (broker.now / 50, 0.0))
    broker.answers_at = float("inf")
    assert "did nothing" in broker.await_answer()


def test_it_starts_at_its_earlier_port_unless_another_is_asked_for(tmp_path):
    folder = DataFolder(tmp_path)
    folder.note(RunningBroker(1, 0.0, 4321))
    ports = [EmbeddedCluster(tmp_path, port=port, strict_port=port > 0).nodes[0].port for port in (0, 9999)]
    assert ports == [4321, 9999]
