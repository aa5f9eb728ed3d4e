"""`predict` and `replay` as a user runs them, against one served pipeline.

The commands run in the tests' process, as one of their own takes half a second to start.
"""

import json
import signal
import subprocess

import numpy as np
import pytest

from spillway.producers.recording import read_recording
from spillway.producers.report import Report
from tests.acceptance.serving import SPILLWAY, serving
from tests.acceptance.serving import command as run_here
from tests.waiting import until

MODEL = """
from pathlib import Path


class Echo:
    def predict(self, batch):
        for inputs in batch:
            if not Path(inputs.get("after", "/")).exists():
                raise RuntimeError("not yet")
        return [{"back": inputs["x"], "more": inputs.parameters.get("more")} for inputs in batch]


def numbers(index, rng):
    return {"x": index}


def broken(index, rng):
    return {}
"""

TENSOR = {"dtype": "float32", "shape": [1, 2], "data": [[0.5, 1.5]]}
SLO_SECONDS = 600  # of 2 s a machine that stood still cost 37 queries of 40: what is late is dropped, and rightly


@pytest.fixture(scope="module")
def served(broker, tmp_path_factory):
    """A pipeline that echoes `x`, and the command run in its folder."""
    folder = tmp_path_factory.mktemp("echo")
    name = folder.name
    (folder / "echo_models.py").write_text(MODEL)
    spec = folder / "pipeline.yaml"
    spec.write_text(
        f"name: {name}\nslo: {SLO_SECONDS}s\npartitions: 3\nstages:\n  - {{name: first, model: 'echo_models:Echo'}}\n"
    )

    class Command:
        """`spillway COMMAND pipeline.yaml ...` in the pipeline's folder; `dead` has a word before the pipeline."""

        def __init__(self):
            self.folder, self.name = folder, name

        def words(self, command, *arguments):
            words = list(map(str, arguments))
            at = 1 if command == "dead" else 0
            return [command, *words[:at], spec, *words[at:], "--run-dir", folder / "run"]

        def __call__(self, command, *arguments, stdin=""):
            return run_here(*self.words(command, *arguments), cwd=folder, stdin=stdin)

        def start(self, command, *arguments):
            return subprocess.Popen([SPILLWAY, *self.words(command, *arguments)], cwd=folder)

    with serving(spec, name, broker, folder):
        yield Command()


def test_predict_prints_the_outcome(served):
    done = served(
        "predict", "-", "--request-id", "mine", "--parameters", '{"more": [1]}', stdin=json.dumps({"x": TENSOR})
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["request_id"] == "mine"
    assert outcome["kind"] == "prediction"
    assert outcome["outputs"] == {"back": TENSOR, "more": [1]}
    assert outcome["timings"][0]["stage"] == "first"


def test_a_query_that_a_model_failed_on_is_listed_shown_and_asked_again(served, tmp_path):
    stdin = json.dumps({"x": 7, "after": str(tmp_path / "mended")})
    failed = json.loads(served("predict", "-", "--request-id", "early", "--key", "ada", stdin=stdin).stdout)
    assert failed["kind"] == "failed"
    assert failed["text"] == "RuntimeError: not yet (echo_models.py:9 in predict)"

    *_, letter = json.loads(served("dead", "list", "--json", "--reason", "model-raised").stdout)
    assert (letter["request_id"], letter["attempt"], letter["text"]) == ("early", 1, failed["text"])
    shown = json.loads(served("dead", "show", letter["letter"]).stdout)
    assert (shown["inputs"]["x"], shown["key"]) == (7, "ada")
    table = served("dead", "list", "--stage", "first").stdout
    assert letter["letter"] in table
    (line,) = (each for each in table.splitlines() if each.startswith(letter["letter"] + " "))
    assert line.endswith("first  model-raised  early")
    assert f"    {failed['text']}" in table.splitlines()

    again = served("dead", "retry", letter["letter"], "--json")
    assert again.returncode == 1
    told = json.loads(again.stdout)
    assert (told["retry_of"], told["kind"]) == ("early", "failed")
    *_, second = json.loads(served("dead", "list", "--json", "--reason", "model-raised").stdout)
    assert (second["request_id"], second["attempt"]) == (told["request_id"], 2)

    (tmp_path / "mended").touch()
    mended = served("dead", "retry", second["letter"])
    assert mended.returncode == 0, mended.stdout
    assert "early.3-" in mended.stdout
    assert "1 of 1 got a prediction" in mended.stdout
    places = {letter["letter"], second["letter"]}
    assert places.isdisjoint(each["letter"] for each in json.loads(served("dead", "list", "--json").stdout))
    assert places <= {each["letter"] for each in json.loads(served("dead", "list", "--json", "--retried").stdout)}
    assert "2 more were retried" in served("dead", "list").stdout


def test_an_id_that_is_used_again_is_told(served):
    once = served("predict", "-", "--request-id", "twice", stdin='{"x": 1}')
    assert once.returncode == 0
    again = served("predict", "-", "--request-id", "twice", "--deadline", "1", "--timeout", "2", stdin='{"x": 1}')
    assert again.returncode == 1
    assert "no outcome of query twice came in time; was the id used before?" in again.stderr


def test_what_a_model_raises_is_told_by_the_exit_code_and_logged_with_its_traceback_once(served):
    for _ in range(2):
        done = served("predict", stdin="{}")
        assert done.returncode == 1
        outcome = json.loads(done.stdout)
        assert (outcome["kind"], outcome["reason"]) == ("failed", "model-raised")
    (log,) = (served.folder / "run" / served.name / "logs").glob("first.0*")
    assert log.read_text().count("KeyError: 'x: the query has no inputs'\n") == 1
    assert "echo_models.py" in log.read_text()
    terminal = served.folder / "serve.out"
    until(lambda: "first.0: a query failed (model-raised)" in terminal.read_text(), 60, "the terminal tells of it")
    assert "Traceback (most recent call last):" in terminal.read_text()
    assert "[^" not in log.read_text()  # nor how Faust's services start


_CONSTANT = ("constant:5", "--duration", "1")


@pytest.mark.parametrize(
    ("command", "arguments", "query", "message"),
    [
        ("predict", ["query.json"], "nonsense", "not JSON"),
        ("predict", ["query.json"], "[1]", "a JSON object"),
        ("predict", ["query.json"], '{"x": {"dtype": "f", "data": 1}}', "no dtype 'f'"),
        ("predict", ["query.json", "--request-id", "two words"], "{}", "request id"),
        ("predict", ["query.json", "--deadline", "-1"], "{}", "--deadline"),
        ("predict", ["query.json", "--bootstrap", "nowhere"], "{}", "HOST:PORT"),
        ("dead", ["retry", "0/999999"], "", "has no letter '0/999999'"),
        ("dead", ["retry"], "", "name the letters to retry"),
        ("dead", ["retry", "0/1", "--all"], "", "name the"),
        ("replay", ["none.csv", "--attach"], "", "there is no trace or recording none.csv"),
        ("replay", ["poisson:5", "--attach"], "", "--duration"),
        ("replay", [*_CONSTANT, "--attach", "--payload", "echo_models:none"], "", "no function 'none'"),
        ("replay", [*_CONSTANT, "--attach", "--policy", "expired"], "", "--policy"),
        ("replay", ["constant:5", "--attach", "--duration", "soon"], "", "--duration"),
    ],
)
def test_bad_use_is_refused(served, command, arguments, query, message):
    (served.folder / "query.json").write_text(query)
    done = served(command, *arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_replay_reports_on_a_running_pipeline(served, tmp_path):
    report, samples = tmp_path / "report.json", tmp_path / "samples.npz"
    done = served(
        "replay", "poisson:100", "--duration", "1s", "--attach", "--payload", "echo_models:numbers", "--seed", 3,
        "--output", report, "--samples", samples, "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = Report.model_validate_json(report.read_text())
    assert json.loads(done.stdout) == json.loads(report.read_text())
    assert found.requests == found.outcomes.prediction
    assert (found.outcomes.missing, found.outcomes.duplicate) == (0, 0)
    assert found.good + found.late == found.requests
    assert found.stages["first"].received == found.requests
    assert 0 < found.stages["first"].batches <= found.requests
    assert 0 <= found.invalid_rate <= 1
    assert found.slo_ms == 1000 * SLO_SECONDS
    with np.load(samples) as arrays:
        assert len(arrays["due"]) == found.requests
        assert np.all(arrays["finished"] > arrays["due"])


def test_replay_takes_a_recording(served, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("second,requests\n0,20\n1,20\n")
    recording = tmp_path / "recording"
    arguments = ("--attach", "--payload", "echo_models:numbers")
    recorder = served.start("record", "-o", recording)
    try:
        until(lambda: any(recording.glob("*.avro")), 30, "the recorder writes")
        assert served("replay", trace, *arguments).returncode == 0
    finally:
        recorder.send_signal(signal.SIGTERM)
        recorder.wait(600)
    done = served("replay", recording, "--attach", "--speed", 2, "--json")
    assert done.returncode == 0, done.stderr
    report = Report.model_validate_json(done.stdout)
    assert report.outcomes.prediction == report.requests == 40
    sent = [query.timestamp for query in read_recording(recording).queries()]
    assert report.duration_s == pytest.approx((sent[-1] - sent[0]) / 2, abs=1e-3)
    refused = served("replay", recording, *arguments)
    assert refused.returncode == 2
    assert "--payload" in refused.stderr


def test_replay_counts_what_fails(served, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("t\n0\n0.1\n0.2\n")
    done = served("replay", trace, "--attach", "--payload", "echo_models:broken")
    assert done.returncode == 0, done.stderr
    assert "3 failed" in done.stdout
    assert "failed at first: 3 model-raised" in done.stderr
