"""`spillway serve` and `spillway status` as a user or a script runs them, on real processes and a real Kafka."""

import json
import os
import platform
import signal
import subprocess
import time

import psutil
import pytest

from spillway.agents.broker.folder import DataFolder
from spillway.agents.cli.cluster import find_cluster
from spillway.agents.supervise.registry import ServeEntry, entries
from spillway.lineage.message import PREDICTION
from spillway.producers.client import Client
from spillway.producers.connection import ClientSettings
from tests.acceptance.serving import SPILLWAY, command
from tests.waiting import PATIENT_SECONDS, gone, until

MODEL = """
class Greet:
    def predict(self, batch):
        return [{"greeting": f"Hello, {query['name']}!"} for query in batch]
"""
BROKEN = "class Greet:\n    def __init__(self):\n        raise OSError('the weights are gone')\n"


@pytest.fixture
def project(tmp_path, unique_name):
    (tmp_path / "hello.py").write_text(MODEL)
    (tmp_path / "pipeline.yaml").write_text(
        f"name: {unique_name}\nslo: 5s\npartitions: 2\nstages:\n  - name: greet\n    model: hello:Greet\n"
    )
    return tmp_path


class Serve:
    def __init__(self, project, name, *options, environment=None):
        self.project, self.name = project, name
        self.run_dir = project / ".spillway" / "run"
        self.errors = project / "serve.err"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [SPILLWAY, "serve", "pipeline.yaml", *options],
                cwd=project,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={key: value for key, value in os.environ.items() if not key.startswith("SPILLWAY_")}
                | (environment or {}),
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(600)
        self.process.stdout.close()

    def await_ready(self):
        assert self.process.stdout.readline() == "ready\n", self.said()

    def said(self):
        logs = sorted((self.run_dir / self.name / "logs").glob("*"))
        return self.errors.read_text() + "".join(f"--- {log.name}\n{log.read_text()[-3000:]}" for log in logs)

    def entry(self, stage):
        return next((e for e in entries(self.run_dir, self.name) if e.stage == stage and e.alive() and e.ready), None)

    def settings(self):
        return ClientSettings.load(ServeEntry.read(self.run_dir, self.name).bootstrap)

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(600)


def ask(settings, name):
    with Client(name, settings, slo=PATIENT_SECONDS) as client:
        outcome = client.predict({"name": "Ada"})
    assert outcome.kind == PREDICTION
    return outcome.outputs["greeting"]


def test_one_command_serves_with_a_kafka_of_its_own_and_takes_it_along(project, unique_name):
    """The folder that it is told comes before the environment's address, where nothing listens."""
    environment = {"SPILLWAY_BOOTSTRAP": "127.0.0.1:1"}
    with Serve(project, unique_name, "--broker-dir", "kafka", environment=environment) as serve:
        serve.await_ready()
        kafka = DataFolder(project / "kafka").running()
        assert ask(serve.settings(), unique_name) == "Hello, Ada!"
        status = subprocess.run(
            [SPILLWAY, "status", "--json"], cwd=project, capture_output=True, text=True, check=False
        )
        assert status.returncode == 0, status.stderr
        pipeline = json.loads(status.stdout)["pipelines"][unique_name]
        assert pipeline["plan_period"] == 1.0
        assert pipeline["bootstrap"] == kafka.bootstrap
        assert {name: process["state"] for name, process in pipeline["processes"].items()} == {
            "greet.0": "running",
            "gate.0": "running",
        }
        assert pipeline["processes"]["greet.0"]["figures"]["received"] == 1
        assert pipeline["processes"]["gate.0"]["figures"]["outcomes"]["prediction"] == {"": 1}
        pids = [process["pid"] for process in pipeline["processes"].values()]
        assert "running" in command("status", unique_name, cwd=project).stdout
        assert serve.end() == 0, serve.said()
        assert "stopped; 1 answered" in serve.errors.read_text()
    assert all(gone(pid) for pid in [*pids, kafka.pid])
    after = command("status", cwd=project)
    assert after.returncode == 1
    assert "nothing is served" in after.stderr


def test_a_wedged_stage_is_restarted_and_a_killed_supervisor_leaves_nothing_behind(project, unique_name):
    with Serve(project, unique_name, "--stall", "3") as serve:
        serve.await_ready()
        kafka = DataFolder(project / ".spillway" / "broker").running()
        wedged = serve.entry("greet").pid
        os.kill(wedged, signal.SIGSTOP)
        with Client(unique_name, serve.settings(), slo=PATIENT_SECONDS) as client:
            waiting = client.submit({"name": "Ada"})
            until(lambda: (now := serve.entry("greet")) is not None and now.pid != wedged, 60, serve.said)
            assert waiting.result(PATIENT_SECONDS).outputs == {"greeting": "Hello, Ada!"}
        assert gone(wedged)
        assert "made no progress for 3 s" in serve.said()
        guard = psutil.Process(kafka.pid).ppid()
        pids = [kafka.pid, guard, serve.entry("greet").pid, serve.entry("gate").pid]
        os.kill(serve.entry("greet").pid, signal.SIGSTOP)
        serve.process.kill()
        for pid in pids:
            until(lambda pid=pid: gone(pid), 60, f"process {pid} outlived the supervisor")
    status = command("status", cwd=project)
    assert status.returncode == 1
    assert status.stdout.count(" gone ") == 2


def test_a_model_that_cannot_be_loaded_ends_the_start_and_says_why(project, unique_name, broker):
    (project / "hello.py").write_text(BROKEN)
    with Serve(project, unique_name, "--bootstrap", broker) as serve:
        assert serve.process.wait(600) in {1, 2}
        assert "the weights are gone" in serve.errors.read_text()
        assert "greet.0 FAILED" in serve.errors.read_text()
        assert "joining group" not in serve.said()


def test_what_cannot_work_is_refused_at_once(project, unique_name, broker):
    def refused(*arguments):
        done = command("serve", *arguments, "--bootstrap", broker, cwd=project)
        assert done.returncode == 2
        return done.stderr

    refused("nowhere.yaml")
    assert "has no stage 'nonsense'; known: greet" in refused("pipeline.yaml", "--stage", "nonsense")
    refused("pipeline.yaml", "--stage", "greet", "--gate")
    ServeEntry(unique_name, "pipeline.yaml", broker, None, os.getpid(), time.time()).write(project / ".spillway/run")
    assert "already served" in refused("pipeline.yaml")


@pytest.fixture
def elsewhere(project, tmp_path_factory):
    """The same pipeline in another folder, as on another machine."""
    folder = tmp_path_factory.mktemp("elsewhere")
    for file in ("hello.py", "pipeline.yaml"):
        (folder / file).write_text((project / file).read_text())
    return folder


def test_a_second_serve_is_refused_and_one_that_takes_over_ends_the_first_in_good_order(
    project, elsewhere, unique_name, broker
):
    with Serve(project, unique_name, "--bootstrap", broker) as first:
        first.await_ready()
        gate = first.entry("gate").pid
        for options in ((), ("--stage", "greet")):
            serve = [SPILLWAY, "serve", "pipeline.yaml", "--bootstrap", broker, *options]
            refused = subprocess.run(serve, cwd=elsewhere, capture_output=True, text=True, check=False)
            assert refused.returncode == 2
            said = refused.stderr.splitlines()
            assert f"is already served by {platform.node()}:{first.process.pid}@" in said[-1]
            assert " since 20" in said[-1]
            assert "--take-over" in said[-1]
        assert not list((elsewhere / ".spillway" / "run").glob("*/*.json"))
        assert ask(first.settings(), unique_name) == "Hello, Ada!"
        pids = [first.entry("gate").pid, first.entry("greet").pid]
        assert pids[0] == gate
        with Serve(elsewhere, unique_name, "--bootstrap", broker, "--take-over") as second:
            second.await_ready()
            assert first.process.wait(600) == 1
            assert all(gone(pid) for pid in pids)
            said = first.errors.read_text()
            assert f"was taken over by {platform.node()}:{second.process.pid}@" in said
            assert "did not end cleanly" not in said
            assert "fenced" not in first.said()
            assert ask(second.settings(), unique_name) == "Hello, Ada!"
            assert second.end(signal.SIGINT) == 130


@pytest.mark.nightly
def test_the_local_kafka_is_left_to_the_serve_that_takes_over(project, elsewhere, unique_name):
    folder = project / ".spillway" / "broker"
    with Serve(project, unique_name) as first:
        first.await_ready()
        kafka = DataFolder(folder).running()
        with Serve(elsewhere, unique_name, "--broker-dir", folder, "--take-over") as second:
            second.await_ready()
            assert first.process.wait(600) == 1
            assert DataFolder(folder).running().pid == kafka.pid
            assert ask(second.settings(), unique_name) == "Hello, Ada!"
            assert second.end() == 0, second.said()
    assert gone(kafka.pid)


def test_an_orchestrators_processes_make_a_pipeline_and_each_is_taken_over_alone(
    project, elsewhere, unique_name, broker
):
    gate = Serve(project, unique_name, "--bootstrap", broker, "--gate")
    stage = Serve(project, unique_name, "--bootstrap", broker, "--stage", "greet", "--replica", "0")
    with gate, stage:
        until(lambda: gate.entry("gate") and gate.entry("greet"), 60, "both ready")
        settings = find_cluster(broker, None)
        assert ask(settings, unique_name) == "Hello, Ada!"
        with Serve(elsewhere, unique_name, "--bootstrap", broker, "--gate", "--take-over") as second:
            until(lambda: second.entry("gate"), 120, second.said)
            assert gate.process.wait(600) == 1
            assert f"gate.0 of {unique_name} was taken over by" in gate.errors.read_text()
            assert ask(settings, unique_name) == "Hello, Ada!"
            assert stage.end() == 0, stage.said()
            assert second.end() == 0, second.said()
