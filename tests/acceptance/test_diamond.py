"""The oracle over a real broker: one right outcome for every accepted query, whatever is killed on the way."""

import random
import time

import pytest
import yaml

from benchmarks.steady import Steady
from spillway.lineage.message import PREDICTION
from tests.acceptance.diamond_models import expected
from tests.acceptance.serving import ROOT, serving
from tests.oracle import repetition_problems
from tests.waiting import PATIENT_SECONDS, until

MODELS = "tests.acceptance.diamond_models"
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


def executions(folder):
    for line in (folder / "executions.log").read_text().splitlines():
        stage, request_id, process = line.split()
        yield stage, request_id, process


def right(request_id, kind, told):
    return kind == PREDICTION and told == expected(int(request_id.removeprefix("query-")))


def judge(served, folder, accepted, replaced):
    """Drain the pipeline, then hold everything that it did against the oracle."""
    assert served.stop() == 0, served.logs()
    served.judge(accepted, "z", right)
    problems = repetition_problems(executions(folder), replaced)
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
        with served.client() as client:
            load = Steady(rate, lambda n: client.submit({"x": n}, request_id=f"query-{n}"))
            load.start()
            for victim in victims:
                time.sleep(rng.uniform(0.2, 1.5))  # the seeded moment, not a wait for something
                served.await_replacement(victim, of=served.kill(victim))
            until(lambda: len(load.done) >= least, 120, f"{least} outcomes")
            accepted = [f"query-{n}" for n, _ in enumerate(load.end())]
        judge(served, tmp_path, accepted, replaced=set(STAGES) & {*victims})
