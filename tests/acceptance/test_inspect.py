"""`spillway inspect`, logged lines and traces, of queries that ended in each way there is in a served pipeline."""

import json
import subprocess
import time
from datetime import UTC, datetime

import pytest

from spillway.agents.cli.main import run
from spillway.lineage.message import DROPPED, FAILED, PREDICTION
from spillway.lineage.trace import TraceContext, new_trace
from spillway.producers.client import Client
from spillway.producers.connection import ClientSettings
from tests.collector import attributes, collecting
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
TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Asked:
    """A pipeline that was asked four queries, one that its caller records, and answers a fifth when it may."""

    def __init__(self, served, collector, broker):
        self.served, self.collector, self.broker = served, collector, broker
        self.name, self.folder = served.pipeline, served.output.parent
        self.began = time.time_ns() // 1000 * 1000
        self.released = self.folder / "released"

    def ask(self, client):
        caller = TraceContext(TRACE, CALLER, 1)
        assert client.predict({"x": 1}, request_id="plain").kind == PREDICTION
        assert client.predict({"x": 1}, request_id="good", key="ada", trace=caller).kind == PREDICTION
        assert client.predict({"why": "boom"}, request_id="bad").kind == FAILED
        assert client.predict({"x": 1}, request_id="hurried", deadline=0.001).kind == DROPPED
        self.stuck = client.submit({"until": str(self.released)}, request_id="stuck")

    def inspect(self, request_id, *options):
        command = [SPILLWAY, "inspect", "pipeline.yaml", request_id, "--bootstrap", self.broker, *options]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.folder)


@pytest.fixture(scope="module")
def asked(broker, tmp_path_factory):
    folder = tmp_path_factory.mktemp("inspect")
    (folder / "acting.py").write_text(MODELS)
    (folder / "pipeline.yaml").write_text(FILE.format(name=folder.name))
    with collecting() as collector:
        options = ("--log-format", "json", "--otlp", collector.url, "--trace-sample", "0")
        with (
            serving(folder / "pipeline.yaml", folder.name, broker, folder, *options) as served,
            Client(folder.name, ClientSettings.load(broker), slo=PATIENT_SECONDS) as client,
        ):
            made = Asked(served, collector, broker)
            made.ask(client)
            yield made
            made.released.touch()
            assert served.stop() == 0, served.logs()


def test_a_query_is_found_whatever_became_of_it(asked, capsys):
    began = datetime.fromtimestamp(asked.began / 1e9, UTC).isoformat()

    def told(request_id, *options):
        """What the command says, run in this process, as one of its own takes half a second to start."""
        file = str(asked.folder / "pipeline.yaml")
        code = run(["inspect", file, request_id, "--bootstrap", asked.broker, "--json", *options])
        done = capsys.readouterr()
        found = json.loads(done.out or "{}")
        assert code == (0 if found.get("state") == "answered" else 1), done.err
        return found

    good = told("good", "--key", "ada")
    assert (good["kind"], good["key"], good["late"]) == (PREDICTION, "ada", False)
    assert [(row["stage"], row["model"], row["batch"]) for row in good["stages"]] == [
        ("first", "acting:Pass", 1), ("act", "acting:Act", 1),
    ]  # fmt: skip
    ways = [row["arrived_ms"] for row in good["stages"]]
    assert 0 < ways[0] < ways[1] < good["latency_ms"] + 1
    assert told("good", "--at", began)["stages"] == good["stages"]  # without its key: in all partitions
    assert "act:Act 2" in (text := asked.inspect("good", "--key", "ada").stdout).replace("acting", "act"), text

    bad = told("bad", "--at", began)
    assert (bad["kind"], bad["reason"], bad["stage"]) == (FAILED, "model-raised", "act")
    assert "boom" in bad["text"]
    logs = (asked.served.run_dir / asked.name / "logs").glob("act*.log")
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
    assert [(each["topic"], each["done"]["act"]) for each in stuck["seen"][1:]] == [(f"{asked.name}.act", False)]
    asked.released.touch()
    assert asked.stuck.result().kind == PREDICTION
    assert told("nobody", "--at", began)["state"] == "not-found"
    foreign = asked.inspect("nobody")
    assert foreign.returncode == 2
    assert "(--at, or at= by HTTP)" in foreign.stderr


def test_a_prediction_that_its_caller_records_and_every_loss_are_traced(asked):
    until(lambda: all(map(asked.collector.of_request, ("good", "bad", "hurried"))), 60, "all traces")
    assert not asked.collector.of_request("plain")

    spans = {(span["name"], span["parentSpanId"]): span for span in asked.collector.of_request("good")}
    root = spans[asked.name, CALLER]
    first, act = spans["first", root["spanId"]], spans["act", root["spanId"]]
    ran = spans["execute", act["spanId"]]
    assert (root["traceId"], len(spans)) == (TRACE, 5)
    starts, ends = ([int(span[f"{end}TimeUnixNano"]) for span in (root, first, act, ran)] for end in ("start", "end"))
    assert asked.began <= starts[0] < starts[1] < ends[1] <= starts[2] <= starts[3] < ends[3] == ends[2] < ends[0]
    assert (attributes(act)["spillway.model"], attributes(act)["spillway.version"]) == ("acting:Act", "2")

    bad = {span["name"]: span for span in asked.collector.of_request("bad")}
    assert (bad[asked.name]["traceId"], bad[asked.name]["parentSpanId"]) == (new_trace("bad").trace_id, "")
    assert [attributes(bad[name])["error.type"] for name in (asked.name, "act")] == ["model-raised"] * 2
    assert "boom" in bad[asked.name]["status"]["message"]
    (hurried,) = (span for span in asked.collector.of_request("hurried") if span["name"] == asked.name)
    assert (attributes(hurried)["spillway.outcome"], attributes(hurried)["spillway.late"]) == (DROPPED, True)
