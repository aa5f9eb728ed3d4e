"""A replica that is killed under load: a standby has its partitions at once, nothing is lost, nothing comes twice."""

import os
import signal
import time

import pytest
import yaml

from benchmarks.steady import Steady
from spillway.agents.supervise.registry import entries
from spillway.lineage.keys import partition_for
from spillway.lineage.message import PREDICTION
from tests.acceptance.serving import ROOT, serving
from tests.waiting import PATIENT_SECONDS, GivenTime, until

STAGE = {"name": "reply", "model": "benchmarks.hams.standbys:Witness", "workers": {"fronts": 2, "standby": 1}}
PARTITIONS = 12
SESSION_SECONDS = 10.0  # after which the broker hands over a dead member's partitions, did nobody take its name


def ready(run_dir, name):
    found = entries(run_dir, name)
    return {entry.name: entry.pid for entry in found if entry.stage == "reply" and entry.ready and entry.alive()}


class Traffic(Steady):
    """Queries at a steady rate, each with its partition, and who has answered them."""

    def __init__(self, client, rate):
        self.accepted = []  # request ids
        self._client = client
        super().__init__(rate, self._submit)

    def _submit(self, number):
        key = f"query-{number}"
        self.accepted.append(key)
        inputs = {"partition": partition_for(key.encode(), PARTITIONS)}
        return self._client.submit(inputs, request_id=key, key=key)

    def partitions_of(self, pid, since):
        """Return the partitions of which a process has answered since then (unix seconds)."""
        answered = [each.outcome.outputs for each in list(self.done) if each.due + each.took >= since]
        return {outputs["partition"] for outputs in answered if outputs.get("pid") == pid}


@pytest.mark.nightly
def test_a_killed_replicas_partitions_move_to_the_standby(broker, unique_name, tmp_path):
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        yaml.safe_dump({"name": unique_name, "slo": PATIENT_SECONDS, "partitions": PARTITIONS, "stages": [STAGE]})
    )
    with serving(path, unique_name, broker, tmp_path, cwd=ROOT) as served:
        before = ready(served.run_dir, unique_name)
        assert set(before) == {"reply.0", "reply.1", "reply.standby0"}
        with served.client() as client:
            traffic = Traffic(client, 50.0)
            traffic.start()
            until(lambda: len(traffic.partitions_of(before["reply.1"], 0.0)) == 6, 30.0, "answers of half of all")
            mine = traffic.partitions_of(before["reply.1"], 0.0)
            killed, since = time.time(), GivenTime()
            os.kill(before["reply.1"], signal.SIGKILL)
            taken_over = before["reply.standby0"]
            until(lambda: traffic.partitions_of(taken_over, killed) == mine, 30.0, "answers of the standby")
            assert since.seconds < SESSION_SECONDS / 2, served.logs()
            until(lambda: set(ready(served.run_dir, unique_name)) == set(before), 60.0, "another standby")
            after = ready(served.run_dir, unique_name)
            outcomes = [each.outcome for each in traffic.end()]
        assert served.stop() == 0, served.logs()
    assert after["reply.0"] == before["reply.0"]
    assert after["reply.1"] == taken_over
    assert after["reply.standby0"] not in before.values()
    assert {outcome.kind for outcome in outcomes} == {PREDICTION}
    served.judge(traffic.accepted, "pid")
