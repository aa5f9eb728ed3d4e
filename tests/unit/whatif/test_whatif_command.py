"""`spillway whatif` as a user calls it, on recordings made by hand."""

import json

import numpy as np
import pytest

from spillway.agents.cli.main import run
from spillway.lineage.message import FAILED, StageTiming

from .recordings import Taken, served

SPEC = "name: small\nslo: 100ms\npartitions: 4\nstages:\n"
SPEC += "  - {name: a, emulated: {alpha: 10ms, beta: 0}, batching: {size: 1}}\n"


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SPEC)
    return tmp_path


def whatif(capsys, *arguments):
    code = run(["whatif", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def bursty(seed=0, count=1500):
    gaps = np.random.default_rng(seed).gamma(0.25, 0.014 * 4, count)
    return np.round(np.cumsum(gaps), 4).tolist()


def test_the_recorded_configuration_is_predicted_first_and_the_verdict_told(files, capsys):
    with Taken(files / "taken", SPEC, policies={"a": "expired"}) as taken:
        served(taken, bursty(), 0.01, 0.1)
    code, out, err = whatif(capsys, "small.yaml", "taken", "--policy", "naive", "--policy", "expired")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("small, taken, dispatch partition, ")
    assert lines[1].startswith("verdict  close: drop rate within 0.")
    table = [line.split() for line in lines if line.startswith(("recorded", "predicted", "as the file says"))]
    assert [(row[0], "expired" in row, "naive" in row) for row in table] == [
        ("recorded", True, False),
        ("predicted", True, False),
        ("as", False, True),
        ("as", True, False),
    ]


def test_it_fits_80_columns_and_breaks_no_word(files, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    spec = SPEC + "  - {name: recognise, after: a, emulated: {alpha: 10ms, beta: 0}, batching: {size: 1}}\n"
    (files / "small.yaml").write_text(spec)
    sizes = ("--policy", "pard:quantile=.2", "--policy", "naive", "--workers", "a=2,recognise=3")
    _, out, _ = whatif(capsys, "small.yaml", "poisson:60", "--duration", "10", *sizes)
    assert max(map(len, out.splitlines())) <= 80
    words = " ".join(out.split())
    assert "4.0 ms a hop" in words
    assert "no data shows how long a hop through Kafka takes: 4 ms each, typical of two cores (--hop)" in words
    assert "drops: by stage, a/recognise" in words
    assert {"a=2", "recognise=3", "pard:quantile=.2"} <= set(words.split())


def test_json_tells_the_same(files, capsys):
    with Taken(files / "taken", SPEC, policies={"a": "expired"}) as taken:
        latencies = served(taken, bursty(), 0.01, 0.1)
    _, out, _ = whatif(capsys, "small.yaml", "taken", "--fronts", "a=2", "--json")
    told = json.loads(out)
    late = sum(latency > 0.1 for latency in latencies)
    assert told["recorded"]["requests"] == 1500
    assert told["recorded"]["dropped"] == sum(np.isnan(latencies))
    assert told["recorded"]["late"] == pytest.approx(late, abs=20)  # the egress tells milliseconds
    assert told["verdict"]["level"] == "close"
    own, doubled = told["alternatives"]
    assert (own["label"], doubled["label"]) == ("as the file says", "a=2 fronts")
    assert doubled["drop_rate"] < own["drop_rate"] / 2
    assert own["drops_per_stage"]["a"] == own["dropped"]


@pytest.mark.parametrize(
    ("recorded", "options", "predicted"),
    [(0.2, (), 0.2), (0.2, ("--plan-period", "0.5"), 0.2), (None, ("--plan-period", "0.5"), 0.5), (None, (), 0.1)],
)
def test_the_recorded_configuration_keeps_its_period_and_each_policy_has_its_own(
    files, capsys, recorded, options, predicted
):
    with Taken(files / "taken", SPEC, policies={"a": "spillway"}, period=recorded) as taken:
        served(taken, bursty(count=300), 0.01, 0.1)
    _, out, _ = whatif(capsys, "small.yaml", "taken", "--policy", "pard", "--policy", "spillway", *options, "--json")
    told = json.loads(out)
    assert told["recorded"]["plan_period_s"] == recorded
    assert told["predicted"]["plan_period_s"] == predicted
    assert [row["plan_period_s"] for row in told["alternatives"]] == ([0.5, 0.5] if options else [1.0, 0.1])
    unknown = [note for note in told["notes"] if "does not say how often stages exchanged their state" in note]
    assert len(unknown) == (recorded is None)


def test_a_wrong_profile_is_found_out_and_the_recordings_durations_put_it_right(files, capsys):
    with Taken(files / "taken", SPEC.replace("10ms", "5ms"), policies={"a": "expired"}) as taken:
        served(taken, bursty(), 0.01, 0.1)
    (files / "small.yaml").write_text(SPEC.replace("10ms", "5ms"))
    _, out, _ = whatif(capsys, "small.yaml", "taken", "--json")
    assert json.loads(out)["verdict"]["level"] == "poor"
    _, out, _ = whatif(capsys, "small.yaml", "taken", "--json", "--durations", "recorded")
    assert json.loads(out)["verdict"]["level"] == "close"


def test_a_model_without_a_profile_takes_as_long_as_recorded(files, capsys):
    spec = SPEC.replace("emulated: {alpha: 10ms, beta: 0}", "model: 'm:C'")
    (files / "small.yaml").write_text(spec)
    with Taken(files / "taken", spec) as taken:
        served(taken, bursty(), 0.01, 10.0)
    code, out, _ = whatif(capsys, "small.yaml", "taken", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["verdict"]["level"] == "close"
    assert any("stage a has no profile: its durations are taken from the recording" in note for note in told["notes"])


def test_a_recorded_pipeline_whose_profile_is_gone_takes_the_recordings_durations(files, capsys):
    spec = SPEC.replace("emulated: {alpha: 10ms, beta: 0}", "model: 'm:C'")
    (files / "small.yaml").write_text(spec)
    with Taken(files / "taken", spec.replace("slo:", "profile: gone.yaml\nslo:")) as taken:
        served(taken, bursty(), 0.01, 10.0)
    code, out, _ = whatif(capsys, "small.yaml", "taken", "--json")
    assert (code, json.loads(out)["verdict"]["level"]) == (0, "close")


def test_a_recorded_pipeline_that_is_none_is_named(files, capsys):
    with Taken(files / "taken", "name: small\nstages: 5\n") as taken:
        served(taken, [0.0, 1.0], 0.01, 0.1)
    code, _, err = whatif(capsys, "small.yaml", "taken")
    assert code == 2
    assert "the pipeline in taken cannot be read: " in err


def test_each_query_keeps_its_own_deadline(files, capsys):
    with Taken(files / "taken", SPEC) as taken:
        for number in range(400):
            taken.query(f"q{number}", number / 50, budget=0.005 if number % 2 else 1.0)
            taken.outcome(f"q{number}", number / 50 + 0.01, [StageTiming("a", 0, 0, 0.01, 1)])
    _, out, _ = whatif(capsys, "small.yaml", "taken", "--slo", "1s", "--json")
    told = json.loads(out)
    assert told["recorded"]["drop_rate"] == told["predicted"]["drop_rate"] == 0.5
    assert [row["drop_rate"] for row in told["alternatives"]] == [0.0]


def test_a_trace_has_no_verdict_and_says_so(files, capsys):
    code, out, _ = whatif(capsys, "small.yaml", "poisson:50", "--duration", "5s")
    assert code == 0
    assert "verdict" not in out
    assert "note: a trace holds no outcomes" in out


def test_workers_that_were_scaled_are_those_of_the_recorded_configuration(files, capsys):
    found = []
    for workers in ({}, {"a": 3, "gone": 2}):
        with Taken(files / f"taken{len(workers)}", SPEC, workers=workers) as taken:
            served(taken, bursty(count=300), 0.01, 0.1)
        code, out, _ = whatif(capsys, "small.yaml", f"taken{len(workers)}", "--json")
        assert code == 0
        found.append(json.loads(out))
    alone, scaled = found
    assert scaled["predicted"]["p99_ms"] < alone["predicted"]["p99_ms"]
    assert scaled["alternatives"] == alone["alternatives"]
    assert "workers when it was recorded: a 3 (the file: 1); 'as the file says' has the file's" in scaled["notes"]


def test_a_changed_file_is_told(files, capsys):
    with Taken(files / "taken", SPEC) as taken:
        served(taken, bursty(count=300), 0.01, 0.1)
    (files / "small.yaml").write_text(SPEC.replace("100ms", "90ms"))
    _, out, _ = whatif(capsys, "small.yaml", "taken")
    assert "note: small.yaml has changed since the recording" in out


def test_the_page_holds_everything_and_the_plot_is_written(files, capsys):
    with Taken(files / "taken", SPEC, policies={"a": "expired"}) as taken:
        served(taken, bursty(count=300), 0.01, 0.1)
    code, _, err = whatif(capsys, "small.yaml", "taken", "--html", "t.html", "--plot", "t.png", "--policy", "naive")
    assert (code, err) == (0, "")
    page = (files / "t.html").read_text()
    assert page.count("<svg") == 3
    assert "How far to trust this." in page
    assert "http" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    )
    assert (files / "t.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("small.yaml", "none"), "there is no trace or recording none"),
        (("small.yaml", "empty"), "empty holds no recording: no file is named recording-*.avro"),
        (("small.yaml", "other"), "other is a recording of pipeline 'other', and small.yaml is 'small'"),
        (("small.yaml", "open"), "open holds no outcome of its queries: record for longer, or use a trace"),
        (("small.yaml", "failing"), "all 2 outcomes in failing are failures: see 'spillway dead list'"),
        (("small.yaml", "taken", "--policy", "best"), "'best'"),
        (("small.yaml", "taken", "--fronts", "a"), "'a' is not a size such as detect=2"),
        (("small.yaml", "taken", "--fronts", "b=2"), "--fronts: pipeline 'small' has no stage 'b'"),
        (("small.yaml", "taken", "--fronts", "a=5"), "each needs one of the 4 partitions: give it more --workers"),
        (("small.yaml", "taken", "--slo", "0"), "'--slo': must be above 0"),
        (("small.yaml", "taken", "--plot", "x.gif"), "x.gif is not a known plot format"),
        (("small.yaml", "taken", "--html", "no/x.html"), "cannot write no/x.html: there is no folder no"),
        (("small.yaml", "poisson:5"), "--duration"),
        (
            ("model.yaml", "poisson:5", "--duration", "9"),
            "does not show how long its batches take: run 'spillway plan profile model.yaml', or use a recording",
        ),
    ],
)
def test_mistakes_are_named(files, capsys, arguments, words):
    (files / "empty").mkdir()
    (files / "model.yaml").write_text("name: small\nslo: 1\nstages: [{name: a, model: 'm:C'}]\n")
    with Taken(files / "other", SPEC, name="other") as taken:
        taken.query("q", 0.0)
    with Taken(files / "open", SPEC) as taken:
        taken.query("q", 0.0)
    with Taken(files / "failing", SPEC) as taken:
        for name in ("q", "r"):
            taken.query(name, 0.0)
            taken.outcome(name, 0.1, [], kind=FAILED, stage="a", reason="bad-input")
    with Taken(files / "taken", SPEC) as taken:
        served(taken, bursty(count=30), 0.01, 0.1)
    code, out, err = whatif(capsys, *arguments)
    assert code == 2
    assert words in err
    assert not out
    assert "Traceback" not in err


def test_help_shows_an_example_and_what_is_combined(capsys):
    code, out, _ = whatif(capsys, "--help")
    assert code == 0
    assert "Example:" in out
    assert "two policies and two --workers make six rows" in " ".join(out.split())
