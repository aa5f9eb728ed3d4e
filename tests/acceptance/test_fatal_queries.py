"""Queries whose model ends its process, or hangs in it: they fail, each alone, and the pipeline goes on."""

import json

import pytest

from spillway.lineage.message import FAILED, PREDICTION
from spillway.lineage.reasons import MODEL_DIED
from spillway.lineage.values.codec import Decoder
from spillway.producers.connection import ClientSettings
from spillway.producers.kafka.reading import Reading
from spillway.topology import topics
from tests.acceptance.serving import serving
from tests.waiting import PATIENT_SECONDS

MODELS = """
import os
import time

import numpy as np


def mind(query):
    if query.get("act") == "end":
        os._exit(9)
    if query.get("act") == "hang":
        time.sleep(86_400)


class Plain:
    def predict(self, batch):
        for query in batch:
            mind(query)
        return [{"n": query["x"]} for query in batch]


class Count:
    def initialize(self):
        return {"seen": np.zeros(1, np.int64)}

    def compute(self, state, batch):
        for query in batch:
            mind(query)
        return [{"n": int(state["seen"][0]) + at + 1} for at, _ in enumerate(batch)]

    def update(self, state, batch, outputs):
        state["seen"][0] += len(batch)
        return state
"""
GOOD = 20


@pytest.fixture
def module(unique_name, tmp_path):
    name = "fatal_of_" + unique_name.replace("-", "_")
    (tmp_path / f"{name}.py").write_text(MODELS)
    return name


def served_to(stage, broker, name, folder, acts):
    """Serve one stage good queries around some that act so; gives the outcomes of both, and the dead letters' text."""
    path = folder / "pipeline.yaml"
    path.write_text(f"name: {name}\nslo: {PATIENT_SECONDS}s\npartitions: 2\npolicy: naive\nstages:\n  - {stage}\n")
    with serving(path, name, broker, folder, cwd=folder) as served:
        with served.client() as client:
            first = [client.submit({"x": n}, request_id=f"q{n}", key="k") for n in range(GOOD // 2)]
            fatal = [client.submit({"x": 0, "act": act}, request_id=f"f{n}", key="k") for n, act in enumerate(acts)]
            rest = [client.submit({"x": n}, request_id=f"q{n}", key="k") for n in range(GOOD // 2, GOOD)]
            good = [future.result(PATIENT_SECONDS) for future in (*first, *rest)]
            bad = [future.result(PATIENT_SECONDS) for future in fatal]
        assert served.stop() == 0, served.logs()
    sent = [*(f"q{n}" for n in range(GOOD)), *(f"f{n}" for n in range(len(acts)))]
    served.judge(sent, "n", lambda request_id, kind, _told: kind == (FAILED if request_id[0] == "f" else PREDICTION))
    with Reading(ClientSettings(bootstrap=broker), [(topics.dead(name), partition) for partition in (0, 1)]) as reading:
        letters = [Decoder().dead_letter(record.value) for record in reading.to_the_end()]
    assert [(letter.reason, letter.topic) for letter in letters] == [(MODEL_DIED, topics.ingress(name))] * len(acts)
    return good, bad, json.dumps([letter.text for letter in letters])


@pytest.mark.nightly
def test_after_two_deaths_of_a_stateless_stage_its_workers_are_processes_and_die_alone(
    broker, unique_name, tmp_path, module
):
    stage = f'{{name: plain, model: "{module}:Plain", workers: {{timeout: 3s}}}}'
    good, bad, letters = served_to(stage, broker, unique_name, tmp_path, ["end", "hang"])
    assert sorted(outcome.outputs["n"] for outcome in good) == list(range(GOOD))
    for outcome in bad:
        assert (outcome.kind, outcome.reason) == (FAILED, MODEL_DIED)
        assert "offset" in outcome.text
    assert "3 workers ended while they ran it" in letters
    assert "exit code 9" in letters
    assert "timeout" in letters


@pytest.mark.parametrize("backups", [pytest.param(0, marks=pytest.mark.nightly), 1])
def test_a_stateful_stage_fails_it_and_has_every_other_query_in_its_state_once(
    broker, unique_name, tmp_path, module, backups
):
    stage = f'{{name: count, model: "{module}:Count", state: {{kind: shared, backups: {backups}}}}}'
    good, (bad,), letters = served_to(stage, broker, unique_name, tmp_path, ["end"])
    assert sorted(outcome.outputs["n"] for outcome in good) == list(range(1, GOOD + 1))
    assert (bad.kind, bad.reason) == (FAILED, MODEL_DIED)
    assert "processes of stage 'count' ended while they ran it" in letters
