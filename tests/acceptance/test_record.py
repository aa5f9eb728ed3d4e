"""`spillway record` as a user runs it."""

import json
import signal
import subprocess

import pytest
from confluent_kafka import Producer

from spillway.agents.cli.commands.record import ordered
from spillway.agents.live.sizes import Sizes
from spillway.agents.live.topics import ensure
from spillway.producers.connection import ClientSettings
from spillway.producers.recording import read_recording
from spillway.topology import topics
from spillway.topology.load import load
from spillway.topology.sizes import Size, key_of
from tests.acceptance.serving import SPILLWAY


@pytest.fixture
def pipeline(broker, unique_name, tmp_path):
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f'name: {unique_name}\nslo: 1s\npartitions: 3\nstages:\n  - {{name: a, model: "m:M", workers: {{fronts: 2}}}}\n'
    )
    ensure(ClientSettings(bootstrap=broker), topics.topic_plan(load(file).spec))
    return file


def record(pipeline, broker, *arguments):
    command = [SPILLWAY, "record", pipeline, "--bootstrap", broker, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # The pipeline's topics are there, but nobody serves it: that is told, and recorded all the same.
    assert f"no process serves {load(pipeline).spec.name} on {broker}" in process.stderr.readline()
    return process, process.stderr.readline()


def test_what_passes_while_it_runs_is_recorded_until_ctrl_c(pipeline, broker, tmp_path):
    name = load(pipeline).spec.name
    process, said = record(pipeline, broker, "-o", str(tmp_path / "r"), "--json")
    assert said == f"recording {name} into {tmp_path / 'r'}, until Ctrl-C\n"
    producer = Producer({"bootstrap.servers": broker})
    for number in range(20):
        producer.produce(topics.ingress(name), b"q%d" % number)
        producer.produce(topics.egress(name), b"o%d" % number)
    producer.flush()
    size = (tmp_path / "r" / "recording-00001.avro").stat().st_size
    while (tmp_path / "r" / "recording-00001.avro").stat().st_size == size:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert (process.returncode, err) == (0, "")
    summary = json.loads(out)
    assert (summary["queries"], summary["outcomes"]) == (20, 20)
    recording = read_recording(tmp_path / "r")
    assert recording.about.spec == pipeline.read_text()
    assert recording.about.fronts == {"a": 2}
    assert recording.about.policies == {"a": "pard"}
    assert sorted(q.value for q in recording.queries()) == sorted(b"q%d" % number for number in range(20))


def test_a_recording_ends_after_its_duration(pipeline, broker, tmp_path):
    process, _ = record(pipeline, broker, "-o", str(tmp_path / "r"), "--duration", "0.5")
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 0
    assert out.startswith("0 queries, 0 outcomes")


def test_mistakes_are_named_and_leave_nothing(pipeline, broker, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text(pipeline.read_text().replace("name: ", "name: not-", 1))
    process, said = record(other, broker, "-o", str(tmp_path / "r"))
    assert process.wait(600) == 1
    assert "is it running there ('spillway serve PIPELINE')?" in said
    assert not (tmp_path / "r").exists()
    process, said = record(pipeline, broker, "-o", str(tmp_path))
    assert process.wait(600) == 2
    assert "is not empty; name a new directory" in said


def test_it_knows_how_many_workers_a_stage_was_given(pipeline, broker):
    settings, loaded = ClientSettings(bootstrap=broker), load(pipeline)
    for count, known in ((2, {}), (5, {"a": 5})):  # the file has two
        with Sizes(settings, loaded.spec.name) as table:
            table.write({key_of("a"): Size(count, "me", "", 0.0, count, "digest")})
        assert ordered(settings, loaded) == known
