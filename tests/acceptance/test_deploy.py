"""A pipeline over three machines, as docs/deploy.md has it: three network namespaces, joined by a bridge.

The first has Kafka and the client, the second the gate, the stages' processes and a primary, the third its backup and
the remote workers. None has a way to another but its own address: what listens on loopback is not found.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys

import pytest
import trustme

from spillway.agents.supervise.registry import entries
from tests.acceptance.serving import ROOT, SPILLWAY
from tests.certificates import folder_of
from tests.oracle import outcome_problems
from tests.waiting import until

PREFIX = f"sw{os.getpid() % 100000}"
KAFKA, FIRST, SECOND = (f"10.93.7.{number}" for number in (1, 2, 3))
PIPELINE = """
name: {name}
slo: 600s
partitions: 4
policy: naive
stages:
  - {{name: scale, model: "models:Scale"}}
  - name: far
    model: "models:Far"
    after: scale
    workers: {{where: remote, count: 2, listen: "0.0.0.0:7443", tls: certs}}
  - {{name: count, model: "models:Count", after: far, state: keyed}}
"""
MODELS = """
class Scale:
    def predict(self, batch):
        return [{"x": query["x"] * 2} for query in batch]


class Far:
    version = "far"

    def predict(self, batch):
        return [{"x": query["x"] + 1} for query in batch]


class Count:
    def key(self, query):
        return query.key

    def initialize(self):
        return {"n": 0}

    def compute(self, states, batch):
        return [{"told": [query["x"], states[query.key]["n"]]} for query in batch]

    def update(self, states, batch, outputs):
        for query in batch:
            states[query.key]["n"] += 1
        return states
"""
ASK = """
import sys
from spillway import Client
name, bootstrap, first, last = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
with Client(name, bootstrap, slo=600) as client:
    asked = [client.submit({"x": x}, request_id=f"q{x}", key=f"k{x % 4}") for x in range(first, last)]
    [each.result() for each in asked]
"""
JUDGE = """
import json, sys
from tests.acceptance.serving import read_egress
print(json.dumps(read_egress(sys.argv[2], f"{sys.argv[1]}.egress", "told")))
"""
BROKER = """
import sys, time
from spillway.agents.broker.embedded import EmbeddedBroker
broker = EmbeddedBroker(sys.argv[1], port=19092, extra={
    "listeners": "BROKER://0.0.0.0:19092,CONTROLLER://127.0.0.1:19093",
    "controller.quorum.voters": "1@127.0.0.1:19093",
    "advertised.listeners": "BROKER://" + sys.argv[2] + ":19092",
}).start()
print("ready", flush=True)
while True:
    time.sleep(1)
"""


def _ip(*words):
    subprocess.run(["ip", *words], check=True, timeout=30, capture_output=True)


def _can():
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    tried = subprocess.run(["ip", "netns", "add", f"{PREFIX}try"], check=False, capture_output=True, timeout=30)
    if tried.returncode == 0:
        _ip("netns", "del", f"{PREFIX}try")
    return tried.returncode == 0


pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not _can(), reason="needs root, and ip with network namespaces"),
]


class Machines:
    """Processes by the machine, that is the network namespace, that they run in."""

    def __init__(self, folder):
        self.folder, self.started = folder, []

    def spawn(self, machine, name, *command):
        log = (self.folder / f"{name}.log").open("ab")
        words = ["ip", "netns", "exec", f"{PREFIX}{machine}", *map(str, command)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPILLWAY_RUN_DIR": str(self.folder / f"run{machine}")}
        process = subprocess.Popen(words, stdout=log, stderr=log, cwd=self.folder, env=environment)
        self.started.append(process)
        return process

    def said(self, name):
        return (self.folder / f"{name}.log").read_text()

    def logs(self):
        """What all processes said, for a failed test's message."""
        return "\n".join(f"--- {log.name}\n{log.read_text()[-2000:]}" for log in sorted(self.folder.glob("*.log")))


@pytest.fixture
def machines(tmp_path):
    _ip("link", "add", f"{PREFIX}br", "type", "bridge")
    made = Machines(tmp_path)
    try:
        _ip("link", "set", f"{PREFIX}br", "up")
        for number, address in enumerate((KAFKA, FIRST, SECOND)):
            space, inside, outside = f"{PREFIX}{number}", f"{PREFIX}i{number}", f"{PREFIX}o{number}"
            _ip("netns", "add", space)
            _ip("link", "add", outside, "type", "veth", "peer", "name", inside)
            _ip("link", "set", outside, "master", f"{PREFIX}br", "up")
            _ip("link", "set", inside, "netns", space)
            _ip("-n", space, "addr", "add", f"{address}/24", "dev", inside)
            _ip("-n", space, "link", "set", inside, "up")
            _ip("-n", space, "link", "set", "lo", "up")
        yield made
    finally:
        for process in made.started:
            if process.poll() is None:
                process.kill()
            process.wait(30)
        for number in range(3):
            subprocess.run(["ip", "netns", "del", f"{PREFIX}{number}"], check=False, timeout=30, capture_output=True)
        _ip("link", "del", f"{PREFIX}br")


def test_a_pipeline_over_three_machines_survives_the_loss_of_a_process(machines, tmp_path, unique_name):
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.format(name=unique_name))
    (tmp_path / "models.py").write_text(MODELS)
    folder_of(trustme.CA(), tmp_path / "certs")
    machines.spawn(0, "kafka", sys.executable, "-c", BROKER, tmp_path / "broker", KAFKA)
    until(lambda: "ready" in machines.said("kafka"), 90, lambda: machines.said("kafka"))

    told = subprocess.run(
        [SPILLWAY, "check", file, "--processes"], check=True, capture_output=True, text=True, timeout=120
    )
    commands = [shlex.split(line, comments=True)[1:] for line in told.stdout.splitlines()]
    assert len(commands) == 6  # two stages, a primary, a backup, the gate, and the workers' command
    started = {}
    for number, words in enumerate(commands[:-1]):
        machine = 2 if words[-2:] == ["--replica", "1"] else 1  # the backup
        started[f"p{number}"] = machines.spawn(machine, f"p{number}", SPILLWAY, *words, "--bootstrap", f"{KAFKA}:19092")
    worker = [word.replace("FRONT", FIRST).replace("FOLDER", str(tmp_path / "certs")) for word in commands[-1]]
    for number in range(2):
        machines.spawn(2, f"worker{number}", SPILLWAY, *worker)
    runs = (tmp_path / "run1", tmp_path / "run2")
    until(lambda: sum(each.ready for run in runs for each in entries(run, unique_name)) == 5, 120, machines.logs)

    asking = [SPILLWAY.with_name("python"), "-c", ASK, unique_name, f"{KAFKA}:19092"]
    first = machines.spawn(0, "ask0", *asking, 0, 100)
    until(lambda: first.poll() is not None, 120, machines.logs)
    second = machines.spawn(0, "ask1", *asking, 100, 500)
    (primary,) = [name for name in started if "primary of epoch" in machines.said(name)]
    started[primary].kill()
    until(lambda: second.poll() is not None, 120, machines.logs)
    assert (first.returncode, second.returncode) == (0, 0), machines.logs()
    third = machines.spawn(0, "ask2", *asking, 500, 504)
    until(lambda: third.poll() is not None, 120, machines.logs)
    judge = machines.spawn(0, "judge", SPILLWAY.with_name("python"), "-c", JUDGE, unique_name, f"{KAFKA}:19092")
    until(lambda: judge.poll() is not None, 120, machines.logs)

    def right(query, kind, told):
        x = int(query[1:])
        # A batch is computed on the state before it; what comes last finds that every query before has counted once.
        return (kind, told[0]) == ("prediction", 2 * x + 1) and (told[1] == 125 if x >= 500 else told[1] < 125)

    assert outcome_problems([f"q{x}" for x in range(504)], json.loads(machines.said("judge")), right) == []
