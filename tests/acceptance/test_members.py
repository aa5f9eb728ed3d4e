"""A stateful stage under the supervisor: its death report, and the command, have a backup take over long before a lease
could have passed; nothing is lost, and the state goes on where it was."""

import json
import os
import signal
import subprocess

import pytest

from spillway.agents.supervise.registry import entries
from tests.acceptance.serving import SPILLWAY, serving
from tests.waiting import PATIENT_SECONDS, until

MODEL = """
import numpy as np


class Count:
    def initialize(self):
        return {"seen": np.zeros(1, np.int64)}

    def compute(self, state, batch):
        return [{"n": int(state["seen"][0]) + at + 1} for at, _ in enumerate(batch)]

    def update(self, state, batch, outputs):
        state["seen"][0] += len(batch)
        return state
"""
LEASE_SECONDS = 3_600.0  # no wait in this test is as long


def status(run_dir, name):
    told = subprocess.run([SPILLWAY, "status", name, "--run-dir", run_dir, "--json"], capture_output=True, check=False)
    return json.loads(told.stdout)["pipelines"][name]


@pytest.mark.nightly
def test_a_death_report_and_a_planned_switch_need_no_lease(broker, unique_name, tmp_path):
    module = "counting_of_" + unique_name.replace("-", "_")
    (tmp_path / f"{module}.py").write_text(MODEL)
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        f"name: {unique_name}\nslo: {PATIENT_SECONDS}s\npartitions: 1\nstages:\n"
        f'  - {{name: learn, model: "{module}:Count", state: {{kind: shared, lease: {LEASE_SECONDS:g}s}}}}\n'
    )
    sent = []
    with serving(path, unique_name, broker, tmp_path, cwd=tmp_path) as served:
        with served.client() as client:

            def ask(count):
                ids = [f"q{len(sent) + n}" for n in range(count)]
                futures = [client.submit({}, request_id=request_id) for request_id in ids]
                sent.extend(ids)
                return [future.result(PATIENT_SECONDS).outputs["n"] for future in futures]

            ask(50)
            states = status(served.run_dir, unique_name)["states"]
            assert set(states) == {"learn.0.0", "learn.0.1"}
            primary = next(name for name, state in states.items() if state["role"] == "primary")
            assert states[primary]["epoch"] == 1
            victim = next(entry for entry in entries(served.run_dir, unique_name) if entry.name == primary)
            os.kill(victim.pid, signal.SIGKILL)
            ask(50)
            until(lambda: len(status(served.run_dir, unique_name)["states"]) == 2, 60.0, "the dead one's successor")
            switched = subprocess.run(
                [SPILLWAY, "change", "failover", path, "learn", "--bootstrap", broker, "--json"],
                capture_output=True,
                check=False,
                cwd=tmp_path,
                timeout=600,
            )
            assert switched.returncode == 0, switched.stderr
            told = json.loads(switched.stdout)
            assert (told["old_epoch"], told["epoch"]) == (2, 3)
            assert max(ask(50)) == 150  # every query is in the state once
        assert served.stop() == 0, served.logs()
    served.judge(sent, "n")
