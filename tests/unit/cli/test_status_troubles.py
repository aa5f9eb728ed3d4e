"""`spillway status` of a pipeline whose Kafka is gone, or that answers nothing."""

import json
import os
import socket
import time

import pytest
from click.testing import CliRunner

from spillway.agents.cli.commands import status as command
from spillway.agents.live.gate.metrics import GateMetrics
from spillway.agents.live.registry import Registration
from spillway.agents.supervise.registry import ServeEntry
from spillway.agents.supervise.service import PlaceMetrics
from tests import mock_cluster

DEAF = "deaf"


@pytest.fixture(scope="module")
def kafka():
    """Addresses: of a Kafka, of one that takes connections and says nothing, of none."""
    with socket.create_server(("127.0.0.1", 0)) as deaf, socket.create_server(("127.0.0.1", 0)) as closed:
        gone = closed.getsockname()[1]
        closed.close()
        there = mock_cluster.MockCluster().bootstrap if mock_cluster.available() else None
        yield {"there": there, DEAF: f"127.0.0.1:{deaf.getsockname()[1]}", "gone": f"127.0.0.1:{gone}"}


@pytest.fixture
def status(tmp_path, monkeypatch, kafka):
    monkeypatch.setattr(command, "_INTERVAL_SECONDS", 0.0)
    registration = Registration(tmp_path, GateMetrics("p"))
    registration.mark_ready()
    waited = []
    places = PlaceMetrics("p", [], unanswered=lambda: waited[-1])

    def run(where, unanswered, *arguments):
        waited.append(unanswered)
        now = time.time()
        entry = ServeEntry("p", "p.yaml", kafka[where], None, os.getpid(), now, ready=True, port=places.address.port)
        entry.write(tmp_path)
        return CliRunner().invoke(command.status, ["--run-dir", str(tmp_path), *arguments], standalone_mode=False)

    yield run
    registration.close()
    places.close()


@pytest.mark.skipif(not mock_cluster.available(), reason="needs librdkafka's mock cluster")
@pytest.mark.parametrize("waited", [0.0, 2.9, 3.0, 40.0])
def test_how_long_nothing_was_answered_is_said_from_three_seconds_on(status, waited):
    told = status("there", waited)
    assert told.return_value == 0
    assert (f"nothing was answered for {waited:.0f} s" in told.output) == (waited >= 3.0)
    assert "does not answer" not in told.output
    found = json.loads(status("there", waited, "--json").output)["pipelines"]["p"]
    assert (found["kafka"], found["unanswered_seconds"]) == (None, waited)


@pytest.mark.parametrize("where", [DEAF, "gone"])
def test_a_kafka_that_does_not_answer_is_named_and_makes_the_exit_code_1(status, kafka, where):
    told = status(where, 0.0)
    assert told.return_value == 1
    assert f"Kafka at {kafka[where]} does not answer" in " ".join(told.output.split())
    assert kafka[where] in json.loads(status(where, 0.0, "--json").output)["pipelines"]["p"]["kafka"]
