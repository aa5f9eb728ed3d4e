"""The traces of a served pipeline, read by a collector of the test's own."""

import time

from spillway.lineage.message import DROPPED, FAILED, PREDICTION
from spillway.lineage.trace import TraceContext, new_trace
from spillway.producers.client import Client
from spillway.producers.connection import ClientSettings
from tests.collector import attributes, collecting
from tests.waiting import PATIENT_SECONDS, until

from .serving import serving

MODELS = """
class Pass:
    def predict(self, batch):
        return batch

class Act:
    version = "2"

    def predict(self, batch):
        return [{"x": 1 / query["x"]} for query in batch]
"""
FILE = """
name: {name}
slo: 60s
stages: [{{name: first, model: acting:Pass}}, {{name: act, model: acting:Act, after: [first]}}]
"""
TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_a_prediction_that_its_caller_records_and_every_loss_are_traced(tmp_path, unique_name, broker):
    (tmp_path / "acting.py").write_text(MODELS)
    file = tmp_path / "pipeline.yaml"
    file.write_text(FILE.format(name=unique_name))
    with (
        collecting() as collector,
        serving(file, unique_name, broker, tmp_path, "--otlp", collector.url, "--trace-sample", "0") as served,
    ):
        with Client(unique_name, ClientSettings.load(broker), slo=PATIENT_SECONDS) as client:
            assert client.predict({"x": 1}, request_id="plain").kind == PREDICTION
            began = time.time_ns() // 1000 * 1000
            assert client.predict({"x": 1}, request_id="good", trace=TraceContext(TRACE, CALLER, 1)).kind == PREDICTION
            assert client.predict({"x": 0}, request_id="bad").kind == FAILED
            assert client.predict({"x": 1}, request_id="hurried", deadline=0.001).kind == DROPPED
        until(lambda: all(map(collector.of_request, ("good", "bad", "hurried"))), 60, "all traces")
        assert served.stop() == 0, served.logs()
        assert not collector.of_request("plain")

        spans = {(span["name"], span["parentSpanId"]): span for span in collector.of_request("good")}
        root = spans[unique_name, CALLER]
        first, act = spans["first", root["spanId"]], spans["act", root["spanId"]]
        ran = spans["execute", act["spanId"]]
        assert (root["traceId"], len(spans)) == (TRACE, 5)
        starts, ends = (
            [int(span[f"{end}TimeUnixNano"]) for span in (root, first, act, ran)] for end in ("start", "end")
        )
        assert began <= starts[0] < starts[1] < ends[1] <= starts[2] <= starts[3] < ends[3] == ends[2] < ends[0]
        assert (attributes(act)["spillway.model"], attributes(act)["spillway.version"]) == ("acting:Act", "2")

        bad = {span["name"]: span for span in collector.of_request("bad")}
        assert (bad[unique_name]["traceId"], bad[unique_name]["parentSpanId"]) == (new_trace("bad").trace_id, "")
        assert [attributes(bad[name])["error.type"] for name in (unique_name, "act")] == ["model-raised"] * 2
        assert "division by zero" in bad[unique_name]["status"]["message"]
        (hurried,) = (span for span in collector.of_request("hurried") if span["name"] == unique_name)
        assert (attributes(hurried)["spillway.outcome"], attributes(hurried)["spillway.late"]) == (DROPPED, True)
