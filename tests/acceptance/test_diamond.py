"""The oracle over a real broker: one right outcome for every accepted query, whatever is killed on the way."""

import random
import threading
import time
from pathlib import Path

import pytest
import yaml

from spillway.lineage.message import PREDICTION
from spillway.producers.client import Client
from spillway.producers.connection import ClientSettings
from tests.acceptance.diamond_models import expected
from tests.acceptance.serving import read_egress, serving
from tests.oracle import outcome_problems, repetition_problems
from tests.waiting import PATIENT_SECONDS

MODELS = "tests.acceptance.diamond_models"
ROOT = Path(__file__).parents[2]
QUERIES = 10_000
STAGES = ("open", "left", "right", "close")


def diamond(folder, name):
    """A four-stage diamond; the SLO is generous, as this is about what happens and not about when."""
    log = str(folder / "executions.log")

    def stage(own, model, *after):
        return {"name": own, "model": f"{MODELS}:{model}", "arguments": {"log": log}, "after": list(after)}

    spec = {
        "name": name,
        "slo": PATIENT_SECONDS,
        "partitions": 6,
        "stages": [
            stage("open", "Open"),
            stage("left", "Left", "open"),
            stage("right", "Right", "open"),
            {**stage("close", "Close", "left", "right"), "join": {"mode": "all"}},
        ],
    }
    path = folder / "diamond.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    return path


class Load:
    """Sends queries 0, 1, 2, ... at a steady rate until told to stop, and keeps their futures."""

    def __init__(self, client, rate, least=QUERIES):
        self._client = client
        self._rate = rate
        self._least = least
        self.sent = []
        self.enough = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        start = time.monotonic()
        index = 0
        while index < self._least or not self.enough.is_set():
            time.sleep(max(0.0, start + index / self._rate - time.monotonic()))
            self.sent.append((f"query-{index}", self._client.submit({"x": index}, request_id=f"query-{index}")))
            index += 1

    def finish(self):
        """Wait for every outcome; returns the accepted ids."""
        self.enough.set()
        self._thread.join(PATIENT_SECONDS)
        assert not self._thread.is_alive()
        for request_id, future in self.sent:
            assert future.result(PATIENT_SECONDS).kind == PREDICTION, request_id
        return [request_id for request_id, _ in self.sent]


def executions(folder):
    for line in (folder / "executions.log").read_text().splitlines():
        stage, request_id, process = line.split()
        yield stage, request_id, process


def judge(served, broker, folder, accepted, replaced):
    """Drain the pipeline, then hold everything that it did against the oracle."""
    code = served.stop()
    assert code == 0, served.logs()
    egress = read_egress(broker, f"{served.pipeline}.egress", "z")

    def right(request_id, kind, told):
        return kind == PREDICTION and told == expected(int(request_id.removeprefix("query-")))

    problems = outcome_problems(accepted, egress, right)
    problems += repetition_problems(executions(folder), replaced)
    counts = dict.fromkeys(STAGES, 0)
    for stage, _, _ in executions(folder):
        counts[stage] += 1
    problems += [f"{stage}: {n} executions of {len(accepted)}" for stage, n in counts.items() if n < len(accepted)]
    assert not problems, "\n".join([f"{len(problems)} problems", *problems[:20], served.logs()])


@pytest.mark.parametrize(
    ("seed", "rate", "least"),
    [(1, 50, 300), *(pytest.param(seed, 500, QUERIES, marks=pytest.mark.nightly) for seed in (1, 2, 3))],
)
def test_every_process_may_be_killed_under_load(broker, unique_name, tmp_path, seed, rate, least):
    rng = random.Random(seed)
    path = diamond(tmp_path, unique_name)
    victims = [*STAGES, "gate"] if least == QUERIES else ["left", "close", "gate"]  # a stage, one that joins, the gate
    rng.shuffle(victims)
    with serving(path, unique_name, broker, tmp_path, cwd=ROOT) as served:
        with Client(unique_name, ClientSettings(bootstrap=broker), slo=PATIENT_SECONDS) as client:
            load = Load(client, rate, least)
            for victim in victims:
                time.sleep(rng.uniform(0.2, 1.5))  # the seeded moment, not a wait for something
                served.await_replacement(victim, of=served.kill(victim))
            accepted = load.finish()
        judge(served, broker, tmp_path, accepted, replaced=set(STAGES) & {*victims})
