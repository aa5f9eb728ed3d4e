"""`spillway inspect`, and the lines that a served pipeline logs, of queries that ended in each way there is."""

import json
import subprocess
from datetime import UTC, datetime

import pytest

from spillway.agents.cli.main import run
from spillway.lineage.message import DROPPED, FAILED, PREDICTION
from spillway.producers.client import Client
from spillway.producers.connection import ClientSettings
from tests.waiting import PATIENT_SECONDS, until

from .serving import SPILLWAY, serving

MODELS = """
import time
from pathlib import Path


class Pass:
    def predict(self, batch):
        return batch


class Act:
    version = "2"

    def predict(self, batch):
        for query in batch:
            while "until" in query and not Path(query["until"]).exists():
                time.sleep(.02)
            if "why" in query:
                raise ValueError(query["why"])
        return batch
"""
FILE = """
name: {name}
slo: 60s
stages:
  - {{name: first, model: acting:Pass}}
  - {{name: act, model: acting:Act, after: [first]}}
"""


@pytest.fixture
def project(tmp_path, unique_name):
    (tmp_path / "acting.py").write_text(MODELS)
    (tmp_path / "pipeline.yaml").write_text(FILE.format(name=unique_name))
    return tmp_path


def test_a_query_is_found_whatever_became_of_it(project, unique_name, broker, capsys):
    began = datetime.now(UTC).isoformat()
    released = project / "released"
    file = project / "pipeline.yaml"

    def inspect(request_id, *options):
        command = [SPILLWAY, "inspect", file, request_id, "--bootstrap", broker, *options]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=project)

    def told(request_id, *options):
        """What the command says, run in this process, as one of its own takes half a second to start."""
        code = run(["inspect", str(file), request_id, "--bootstrap", broker, "--json", *options])
        done = capsys.readouterr()
        found = json.loads(done.out or "{}")
        assert code == (0 if found.get("state") == "answered" else 1), done.err
        return found

    with serving(file, unique_name, broker, project, "--log-format", "json") as served:
        with Client(unique_name, ClientSettings.load(broker), slo=PATIENT_SECONDS) as client:
            assert client.predict({"x": 1}, request_id="good", key="ada").kind == PREDICTION
            assert client.predict({"why": "boom"}, request_id="bad").kind == FAILED
            assert client.predict({"x": 1}, request_id="hurried", deadline=0.001).kind == DROPPED
            waits = client.submit({"until": str(released)}, request_id="stuck")

            good = told("good", "--key", "ada")
            assert (good["kind"], good["key"], good["late"]) == (PREDICTION, "ada", False)
            assert [(row["stage"], row["model"], row["batch"]) for row in good["stages"]] == [
                ("first", "acting:Pass", 1), ("act", "acting:Act", 1),
            ]  # fmt: skip
            ways = [row["arrived_ms"] for row in good["stages"]]
            assert 0 < ways[0] < ways[1] < good["latency_ms"] + 1
            assert told("good", "--at", began)["stages"] == good["stages"]  # without its key: in all partitions
            assert "act:Act 2" in (text := inspect("good", "--key", "ada").stdout).replace("acting", "act"), text

            bad = told("bad", "--at", began)
            assert (bad["kind"], bad["reason"], bad["stage"]) == (FAILED, "model-raised", "act")
            assert "boom" in bad["text"]
            logs = (served.run_dir / unique_name / "logs").glob("act*.log")
            said = [json.loads(line) for log in logs for line in log.read_text().splitlines() if line[:1] == "{"]
            (raised,) = [line for line in said if line["request_id"] == "bad"]
            assert (raised["level"], raised["stage"], raised["replica"]) == ("ERROR", "act", 0)
            assert raised["trace_id"] == bad["trace_id"]
            assert "ValueError: boom" in raised["message"]
            hurried = told("hurried", "--at", began)
            assert (hurried["kind"], hurried["late"]) == (DROPPED, True)
            assert "after its deadline" in hurried["text"]

            until(lambda: len(told("stuck", "--at", began).get("seen", ())) == 2, 60, "it comes to act")
            stuck = told("stuck", "--at", began)
            assert stuck["state"] == "waiting"
            assert [(each["topic"], each["done"]["act"]) for each in stuck["seen"][1:]] == [
                (f"{unique_name}.act", False)
            ]
            released.touch()
            assert waits.result().kind == PREDICTION
            assert told("nobody", "--at", began)["state"] == "not-found"
            foreign = inspect("nobody")
            assert foreign.returncode == 2
            assert "--at TIME" in foreign.stderr
        assert served.stop() == 0, served.logs()
