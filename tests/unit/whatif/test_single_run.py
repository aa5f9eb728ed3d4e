"""`spillway whatif --once` as a user calls it."""

import json

import pytest

from spillway.agents.cli.main import run
from spillway.producers.recording import About, Recorded, RecordingWriter
from spillway.producers.report import Report
from tests.unit.sim.pipelines import document
from tests.unit.whatif.recordings import Taken, served

CHAIN = [("a", 20.0, 7.0, 3, ()), ("b", 11.0, 5.0, 4, ("a",))]


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(document(CHAIN))
    (tmp_path / "counts.csv").write_text("second,requests\n0,30\n1,60\n2,20\n")
    return tmp_path


def spillway(capsys, *arguments):
    code = run(["whatif", "--once", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_it_prints_a_summary_and_writes_the_report(files, capsys):
    code, out, err = spillway(capsys, "small.yaml", "counts.csv", "-o", "out.json", "--workers", "a=2,b=1")
    assert code == 0
    assert err.splitlines() == [
        "assumed: each hop through Kafka takes 4 ms (typical of two cores)",
        "assumed: batches take exactly what profiles say, queues are unbounded, and no query fails",
    ]
    assert "small, policy pard, counts.csv, SLO 500 ms, emulated accelerators" in out
    assert "110 prediction" in out
    report = Report.model_validate_json((files / "out.json").read_text())
    assert (report.requests, report.trace, report.emulated) == (110, "counts.csv", True)
    assert list(report.stages) == ["a", "b"]


def test_a_recording_that_was_cut_off_says_so(files, capsys):
    with Taken(files / "r", document(CHAIN)) as taken:
        served(taken, [0.0, 0.1], 0.01, 1.0)
    with (files / "r" / "recording-00001.avro").open("ab") as more:
        more.write(b"\x02\x64half a block")
    code, _, err = spillway(capsys, "small.yaml", "r")
    assert (code, err.splitlines()[0]) == (0, "r was cut off while it was written: its last 14 bytes are left out")


def test_what_is_no_trace_and_no_recording_is_named(files, capsys):
    (files / "empty").mkdir()
    (files / "recording-00001.avro").write_bytes(b"Obj\x01\xff")
    assert "empty holds no recording: no file is named recording-*.avro" in spillway(capsys, "small.yaml", "empty")[2]
    said = spillway(capsys, "small.yaml", "recording-00001.avro")[2]
    assert "recording-00001.avro is no text: a trace is CSV" in said


def test_workers_may_be_said_of_some_stages(files, capsys):
    _, by_name, _ = spillway(capsys, "small.yaml", "counts.csv", "--json", "--workers", "a=2")
    _, as_written, _ = spillway(capsys, "small.yaml", "counts.csv", "--json")
    assert by_name != as_written


def test_json_goes_to_standard_output_and_is_the_same_for_a_seed(files, capsys):
    arguments = ("small.yaml", "poisson:50", "--duration", "4s", "--slo", "80ms", "--policy", "expired", "--json")
    _, first, _ = spillway(capsys, *arguments, "--seed", "1")
    _, again, _ = spillway(capsys, *arguments, "--seed", "1")
    _, other, _ = spillway(capsys, *arguments, "--seed", "2")
    assert first == again != other
    report = json.loads(first)
    assert (report["slo_ms"], report["policy"], report["duration_s"]) == (80.0, "expired", 4.0)
    assert report["outcomes"]["dropped"] > 0


def test_scale_and_speed_change_the_load(files, capsys):
    _, out, _ = spillway(capsys, "small.yaml", "counts.csv", "--scale", "2", "--speed", "2", "--json")
    report = json.loads(out)
    assert report["requests"] == 220
    assert report["duration_s"] <= 1.5


def test_a_recording_gives_its_timing(files, capsys):
    about = About("small", "name: small", "small.ingress", "small.egress", {}, {}, 0.0)
    with RecordingWriter(files / "taken", about) as writer:
        for number in range(40):
            writer.write(Recorded("small.ingress", 0, number, 1000 + number / 20, b"k", (), b"v"))
    code, out, err = spillway(capsys, "small.yaml", "taken", "--json")
    assert (code, json.loads(out)["requests"]) == (0, 40)
    assert "assumed: taken does not show hops or choices: " in err  # as nothing came out of it


def test_models_are_not_called_emulated(files, capsys):
    spec = "name: small\nslo: 100ms\nstages:\n  - {name: a, model: 'm:M'}\n"
    (files / "real.yaml").write_text(spec)
    with Taken(files / "real", spec) as taken:
        served(taken, [number / 20 for number in range(60)], 0.01, 0.1)
    code, out, _ = spillway(capsys, "real.yaml", "real")
    assert code == 0
    assert out.splitlines()[0] == "small, policy pard, real, SLO 100 ms, simulated"


CHOOSING = """
name: small
slo: 500ms
stages:
  - {name: ink, choose: "m:f", emulated: {alpha: 5ms}}
  - {name: classify, after: ink, emulated: {alpha: 5ms}}
  - {name: count, after: ink, emulated: {alpha: 5ms}}
  - {name: join, after: [classify, count], emulated: {alpha: 5ms}}
"""


def test_what_a_stage_chooses_is_told_and_may_be_said(files, capsys):
    (files / "choosing.yaml").write_text(CHOOSING)
    arguments = ("choosing.yaml", "constant:20", "--duration", "2s", "--json")
    _, out, err = spillway(capsys, *arguments)
    assert "ink chooses one of classify, count, each equally likely, and never several: no data shows" in err
    received = json.loads(out)["stages"]
    assert received["classify"]["received"] + received["count"]["received"] == 40
    _, out, err = spillway(capsys, *arguments, "--choose", "ink=classify+count:1", "--hop", "0")
    assert "assumed: ink chooses classify+count 100% (as told)" in err
    assert "assumed: each hop through Kafka takes 0 s (as told)" in err
    received = json.loads(out)["stages"]
    assert received["classify"]["received"] == received["count"]["received"] == 40


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("absent.json", "counts.csv"), "absent.json"),
        (("small.yaml", "counts.csv", "--policy", "fastest"), "there is no policy 'fastest'; known: naive"),
        (("small.yaml", "counts.csv", "--slo", "soon"), "must be a duration"),
        (("small.yaml", "counts.csv", "--choose", "a=b"), "not a choice such as"),
        (("small.yaml", "counts.csv", "--choose", "a=b:1"), "chooses no successors"),
        (("small.yaml", "counts.csv", "-o", "no/such/folder.json"), "there is no folder"),
    ],
)
def test_bad_use_says_what_to_do_and_exits_with_2(files, capsys, arguments, words):
    code, out, err = spillway(capsys, *arguments)
    assert code == 2
    assert words in err
    assert not out


def test_a_stage_without_a_profile_cannot_be_simulated(files, capsys):
    (files / "real.yaml").write_text("name: real\nslo: 1\nstages: [{name: a, model: 'm:C'}]\n")
    code, _, err = spillway(capsys, "real.yaml", "counts.csv")
    assert code == 2
    assert "stage a has no profile" in err


def test_choices_may_be_told(files, capsys):
    (files / "fork.yaml").write_text(
        "name: fork\nslo: 1\nsinks: any\nstages:\n"
        "  - {name: a, choose: 'm:f', batching: {size: 1}, emulated: {alpha: 1ms, beta: 0}}\n"
        "  - {name: b, after: a, batching: {size: 1}, emulated: {alpha: 1ms, beta: 0}}\n"
        "  - {name: c, after: a, batching: {size: 1}, emulated: {alpha: 1ms, beta: 0}}\n"
    )
    _, out, _ = spillway(capsys, "fork.yaml", "counts.csv", "--choose", "a=b:.25,:.75", "--hop", "2ms", "--json")
    report = json.loads(out)
    assert 10 < report["stages"]["b"]["received"] < 45
    assert report["stages"]["c"]["received"] == 0
    assert report["outcomes"]["prediction"] == 110
    assert report["latency_ms"]["max"] >= 8.0
