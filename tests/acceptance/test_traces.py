"""The traces of a served pipeline, read by a collector of the test's own."""

import time

from spillway.lineage.message import DROPPED, FAILED, PREDICTION
from spillway.lineage.trace import TraceContext, new_trace
from spillway.producers.client import Client
from spillway.producers.connection import ClientSettings
from tests.collector import collecting
from tests.waiting import PATIENT_SECONDS, until

from .serving import serving

MODELS = """
import time


class Pass:
    def predict(self, batch):
        return batch


class Act:
    version = "2"

    def predict(self, batch):
        if "why" in batch[0]:
            raise ValueError(batch[0]["why"])
        time.sleep(.02)
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


def test_a_prediction_that_its_caller_records_and_every_loss_are_traced(tmp_path, unique_name, broker):
    (tmp_path / "acting.py").write_text(MODELS)
    file = tmp_path / "pipeline.yaml"
    file.write_text(FILE.format(name=unique_name))
    with collecting() as collector:
        options = ("--otlp", collector.url, "--trace-sample", "0")
        with serving(file, unique_name, broker, tmp_path, *options) as served:
            with Client(unique_name, ClientSettings.load(broker), slo=PATIENT_SECONDS) as client:
                began = time.time_ns()
                assert client.predict({"x": 1}, request_id="plain").kind == PREDICTION
                assert (
                    client.predict({"x": 1}, request_id="good", trace=TraceContext(TRACE, CALLER, 1)).kind == PREDICTION
                )
                ended = time.time_ns()
                assert client.predict({"why": "boom"}, request_id="bad").kind == FAILED
                assert client.predict({"x": 1}, request_id="hurried", deadline=0.001).kind == DROPPED
            until(lambda: all(map(collector.of_request, ("good", "bad", "hurried"))), 60, "all traces")
            assert served.stop() == 0, served.logs()

        assert not collector.of_request("plain")  # which was released before the others
        good = {(span["name"], span.get("parentSpanId")): span for span in collector.of_request("good")}
        assert len(good) == 5
        root = good[unique_name, CALLER]
        first, act = good["first", root["spanId"]], good["act", root["spanId"]]
        ran = good["execute", act["spanId"]]
        assert {span["traceId"] for span in good.values()} == {TRACE}
        starts, ends = (
            [int(span[f"{end}TimeUnixNano"]) for span in (root, first, act, ran)] for end in ("start", "end")
        )
        assert began - 1_000 <= starts[0] < starts[1] < ends[1] <= starts[2] <= starts[3] < ends[3] <= ends[2]
        assert ends[2] < ends[0]
        assert starts[0] < ended
        assert ends[3] - starts[3] >= 20_000_000
        assert (act["attributes"]["spillway.model"], act["attributes"]["spillway.version"]) == ("acting:Act", "2")
        assert not root["attributes"]["spillway.late"]

        bad = {span["name"]: span for span in collector.of_request("bad")}
        assert bad[unique_name]["traceId"] == new_trace("bad").trace_id
        assert "parentSpanId" not in bad[unique_name]
        assert bad[unique_name]["attributes"]["error.type"] == bad["act"]["attributes"]["error.type"] == "model-raised"
        assert "boom" in bad[unique_name]["status"]["message"]
        hurried = {span["name"]: span for span in collector.of_request("hurried")}
        assert hurried[unique_name]["attributes"]["spillway.outcome"] == DROPPED
        assert hurried[unique_name]["attributes"]["spillway.late"]
