"""`spillway broker` as a script runs it."""

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from spillway.agents.broker.ports import free_port
from tests.acceptance.serving import SPILLWAY


@pytest.fixture
def spillway(tmp_path):
    """Runs `spillway broker ...` with a data folder of its own; what it started ends with the test."""
    environment = {**os.environ, "SPILLWAY_BROKER_DIR": str(tmp_path / "data")}

    def run(*arguments):
        command = [SPILLWAY, "broker", *arguments]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=600, check=False, cwd=tmp_path
        )

    yield run
    run("stop")


def test_start_use_stop_and_reset(spillway, tmp_path):
    port = free_port()
    bootstrap = spillway("start", "--print-bootstrap", "--port", str(port))
    assert bootstrap.stdout == f"127.0.0.1:{port}\n", bootstrap.stderr
    assert AdminClient({"bootstrap.servers": bootstrap.stdout.strip()}).list_topics(timeout=90).brokers
    assert spillway("start", "--print-bootstrap").stdout == bootstrap.stdout
    assert spillway("start", "--port", str(free_port(but_not={port}))).returncode == 2
    status = spillway("status", "--json")
    assert status.returncode == 0
    told = json.loads(status.stdout)
    assert (told["running"], told["answers"], told["bootstrap"]) == (True, True, bootstrap.stdout.strip())
    assert Path(told["log"]).exists()
    refused = spillway("reset")
    assert refused.returncode == 2
    assert "stop it first" in refused.stderr
    assert json.loads(spillway("stop", "--json").stdout) == {"stopped": True}
    assert json.loads(spillway("stop", "--json").stdout) == {"stopped": False}
    assert spillway("status").returncode == 1
    assert spillway("reset", "--yes").returncode == 0
    assert not (tmp_path / "data").exists()


@pytest.mark.nightly
def test_three_nodes_are_started_told_of_completed_and_stopped_together(spillway, tmp_path):
    started = spillway("start", "--nodes", "3", "--print-bootstrap")
    addresses = started.stdout.strip().split(",")
    assert len(set(addresses)) == 3, started.stderr
    told = json.loads(spillway("status", "--json").stdout)
    assert [node["answers"] for node in told["nodes"]] == [True] * 3
    os.kill(told["nodes"][1]["pid"], signal.SIGKILL)
    status = spillway("status")
    assert status.returncode == 1
    assert f"node 2 at {addresses[1]} does not run" in status.stdout
    assert f"node 3 at {addresses[2]} answers" in status.stdout
    assert spillway("start", "--print-bootstrap").stdout == started.stdout  # the one that is missing
    assert spillway("status").returncode == 0
    refused = spillway("start", "--nodes", "1")
    assert refused.returncode == 2
    assert "holds the data of 3 nodes" in refused.stderr
    assert spillway("reset").returncode == 2
    assert json.loads(spillway("stop", "--json").stdout) == {"stopped": True}
    assert spillway("status", "--print-bootstrap").stdout == ""
    assert spillway("start", "--print-bootstrap").stdout == started.stdout
    assert spillway("stop").returncode == 0
    assert spillway("reset", "--yes").returncode == 0
    assert not (tmp_path / "data").exists()


def test_what_cannot_work_says_what_to_do(spillway, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    foreign = spillway("start", "--broker-dir", str(tmp_path / "mine"))
    assert foreign.returncode == 2
    assert "left alone" in foreign.stderr
    assert spillway("reset", "--broker-dir", str(tmp_path / "mine")).returncode == 2
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port()))
        taken.listen()
        port = str(taken.getsockname()[1])
        refused = spillway("start", "--port", port)
    assert refused.returncode == 2
    assert f"port {port} is in use" in refused.stderr
    assert "Traceback" not in refused.stderr
