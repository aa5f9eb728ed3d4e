"""A pipeline served by the command in a process of its own, and what the tests need to know of it."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import chdir, contextmanager
from pathlib import Path

from click.testing import CliRunner

from spillway.agents.cli.main import run
from spillway.agents.supervise.registry import entries
from spillway.lineage.headers import decode
from spillway.lineage.limits import DEFAULT_LIMITS
from spillway.lineage.message import PREDICTION
from spillway.lineage.schemas import SchemaBook
from spillway.lineage.values.codec import Decoder
from spillway.producers.client import Client
from spillway.producers.connection import ClientSettings
from spillway.producers.kafka.reading import Reading, slots_of
from spillway.topology import topics
from tests.oracle import Answer, outcome_problems
from tests.waiting import PATIENT_SECONDS, until

SPILLWAY = Path(sys.executable).with_name("spillway")
ROOT = Path(__file__).parents[2]
READY_SECONDS = 90.0
STOP_SECONDS = 60.0
_JSON = {"Content-Type": "application/json"}


class Served:
    def __init__(self, process, run_dir, pipeline, output, bootstrap):
        self.process, self.run_dir, self.output = process, run_dir, output
        self.pipeline, self.bootstrap = pipeline, bootstrap

    def entry(self, stage):
        for entry in entries(self.run_dir, self.pipeline):
            if entry.stage == stage and entry.role != "standby" and entry.ready and entry.alive():
                return entry
        return None

    def kill(self, stage):
        entry = self.entry(stage)
        assert entry is not None, f"{stage} is not there to be killed"
        os.kill(entry.pid, signal.SIGKILL)
        return entry.pid

    def await_replacement(self, stage, of, seconds=60.0):
        until(
            lambda: (entry := self.entry(stage)) is not None and entry.pid != of,
            seconds,
            f"a process in place of {stage} (pid {of})",
        )

    def client(self, **options):
        """A patient client, which a context closes."""
        return Client(self.pipeline, self.bootstrap, slo=PATIENT_SECONDS, **options)

    def gateway_port(self):
        """The port of its gateway, once that listens."""
        log = self.run_dir / self.pipeline / "logs" / "gateway.0.log"
        until(lambda: "http://" in log.read_text(), 60, "the gateway listens")
        return int(log.read_text().rpartition("http://127.0.0.1:")[2].split()[0])

    def change(self, *what):
        """Order `spillway change`; returns the exit code and what was said."""
        where = ["--bootstrap", self.bootstrap, "--run-dir", self.run_dir, "--timeout", f"{PATIENT_SECONDS:g}s"]
        done = command("change", *what, *where)
        return done.returncode, done.stdout + done.stderr

    def judge(self, accepted, value, right=lambda _id, kind, _told: kind == PREDICTION):
        """Assert that each accepted query, and no other, has one outcome, and a right one, by its output `value`."""
        egress = read_egress(self.bootstrap, topics.egress(self.pipeline), value)
        problems = outcome_problems(accepted, egress, right)
        assert not problems, "\n".join([f"{len(problems)} problems", *problems[:20], self.logs()])

    def stop(self):
        """SIGTERM; returns the exit code once all is drained."""
        self.process.send_signal(signal.SIGTERM)
        until(lambda: self.process.poll() is not None, STOP_SECONDS, f"{self.pipeline} drained and ended")
        return self.process.wait()

    def logs(self):
        """What the supervisor and its processes said, for a failed test's message."""
        files = [self.output, *sorted((self.run_dir / self.pipeline / "logs").glob("*"))]
        return "\n".join(f"--- {file.name}\n{file.read_text()[-3000:]}" for file in files if file.exists())


class Gateway:
    """A gateway's address, and how to ask it."""

    def __init__(self, port, name):
        self.port, self.name = port, name

    def ask(self, path, body=None, headers=(), method=None):
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        told = {**_JSON, **dict(headers)} if data is not None else dict(headers)
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, told, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENT_SECONDS) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()

    def predict(self, told, **headers):
        status, _, body = self.ask(f"/v1/pipelines/{self.name}/predict", told, headers.items())
        return status, json.loads(body)

    def infer(self, told, headers=(), version=""):
        return self.ask(f"/v2/models/{self.name}{version}/infer", told, headers)


@contextmanager
def serving(pipeline, name, bootstrap, folder, *options, cwd=None):
    """`spillway serve`, from when it is ready; killed at the end if the test did not stop it."""
    ready, output, run_dir = folder / "ready", folder / "serve.out", folder / "run"
    command = [SPILLWAY, "serve", pipeline, "--bootstrap", bootstrap, "--run-dir", run_dir, "--ready-file", ready]
    with output.open("wb") as out:
        process = subprocess.Popen([*command, "--quiet", *options], stdout=out, stderr=out, cwd=cwd or folder)
    served = Served(process, run_dir, name, output, bootstrap)
    try:
        until(
            lambda: ready.exists() or process.poll() is not None,
            READY_SECONDS,
            lambda: f"{name} ready\n{served.logs()}",
        )
        assert process.poll() is None, f"serve ended with {process.returncode}\n{served.logs()}"
        yield served
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(STOP_SECONDS)


def command(*words, cwd=ROOT, stdin=""):
    """Run a command in this process, as one of its own takes half a second to start, and return how it ended."""
    with chdir(cwd), CliRunner().isolation(stdin) as (out, err, _):
        code = run([str(word) for word in words])
        return subprocess.CompletedProcess(words, code, out.getvalue().decode(), err.getvalue().decode())


def read_egress(bootstrap, topic, value):
    """Every committed outcome on the egress topic from its beginning: id, kind, and output `value` or the reason."""
    decoder = Decoder(DEFAULT_LIMITS, SchemaBook())
    settings, answers = ClientSettings(bootstrap=bootstrap), []
    with Reading(settings, slots_of(settings, topic)) as reading:
        for record in reading.to_the_end():
            outcome = decoder.outcome(record.value)
            told = outcome.outputs.get(value) if outcome.kind == PREDICTION else outcome.reason
            answers.append(Answer(decode(record.headers).request_id, outcome.kind, told))
    return answers
