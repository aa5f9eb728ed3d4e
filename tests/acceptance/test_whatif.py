"""A short real run, recorded, and then tried under other policies and sizes, as a user does it."""

import json
import signal
import subprocess

import pytest

from spillway.producers.recording import read_recording
from tests.acceptance.serving import SPILLWAY, serving
from tests.waiting import until

SPEC = """
name: {name}
slo: 2s
partitions: 4
stages:
  - {{name: detect, emulated: {{alpha: 4ms, beta: 4ms}}, batching: {{size: 4}}, choose: "routes:choose"}}
  - {{name: read, after: detect, emulated: {{alpha: 5ms, beta: 5ms}}, batching: {{size: 4}}}}
"""
ROUTES = """
def choose(outputs):
    return [] if outputs["index"] % 4 == 0 else ["read"]
"""


@pytest.mark.nightly
def test_a_recorded_run_is_predicted_and_tried_otherwise(broker, unique_name, tmp_path):
    file = tmp_path / "pipeline.yaml"
    file.write_text(SPEC.format(name=unique_name))
    (tmp_path / "routes.py").write_text(ROUTES)

    def spillway(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        words = [SPILLWAY, command, file, *arguments]
        return subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=600, check=False)

    taken, run_dir = tmp_path / "taken", str(tmp_path / "run")
    with serving(file, unique_name, broker, tmp_path, "--policy", "expired", "--plan-period", "0.2"):
        status = subprocess.run([SPILLWAY, "status", "--run-dir", run_dir], capture_output=True, text=True, check=False)
        assert "latest status of the replicas, every 0.2 s" in status.stdout
        recorder = subprocess.Popen([SPILLWAY, "record", file, "-o", taken, "--run-dir", run_dir], cwd=tmp_path)
        try:
            until(lambda: any(taken.glob("*.avro")), 30, "the recorder writes")
            load = ("poisson:60", "--duration", "5s", "--attach", "--html", "replay.html", "--json")
            replayed = spillway("replay", *load, "--run-dir", run_dir)
            assert replayed.returncode == 0, replayed.stderr
            assert "is served under expired; its stages exchange their state every 0.2 s" in replayed.stderr
            report = json.loads(replayed.stdout)
            # What lies on the egress reaches the recorder's file a second later or so.
            until(lambda: len(list(read_recording(taken).messages())) == 2 * report["requests"], 20, "all are recorded")
        finally:
            recorder.send_signal(signal.SIGTERM)
            recorder.wait(600)
    assert report["policy"] == "expired"  # as served, too
    assert (tmp_path / "replay.html").read_text().count("<svg") == 7

    asked = ("--policy", "naive", "--policy", "expired", "--fronts", "detect=2", "--html", "what.html")
    tried = spillway("whatif", str(taken), *asked, "--json")
    assert tried.returncode == 0, tried.stderr
    told = json.loads(tried.stdout)
    recorded, predicted = told["recorded"], told["predicted"]
    assert recorded["policy"] == predicted["policy"] == "expired"  # as it was served, not as the file says
    assert recorded["plan_period_s"] == predicted["plan_period_s"] == 0.2
    assert [row["plan_period_s"] for row in told["alternatives"]] == [1.0] * 4
    assert recorded["requests"] == predicted["requests"] == report["requests"]
    assert recorded["dropped"] == report["outcomes"]["dropped"]
    # The recording's latency runs from sending to the egress, the replay's from when a query was due to when its client
    # has read the answer: that is longer, on a busy machine by any amount.
    assert report["latency_ms"]["p50"] / 5 < recorded["p50_ms"] <= report["latency_ms"]["p50"] + 10
    assert told["verdict"]["level"] in {"close", "rough", "poor"}
    # A quarter of the queries ends at `detect`: the prediction knows it from the recording.
    assert not any("equally likely" in note for note in told["notes"])
    rows = [(row["policy"], row["label"]) for row in told["alternatives"]]
    assert rows == [(p, size) for size in ("as the file says", "detect=2 fronts") for p in ("naive", "expired")]
    assert (tmp_path / "what.html").read_text().count("<svg") == 3
