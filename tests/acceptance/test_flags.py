"""What models say of their answers reaches the outcome: by a thread, a worker process, and a stage with a state."""

import json

import yaml

from spillway.producers.client import Client
from spillway.producers.connection import ClientSettings
from tests.acceptance.serving import command, serving
from tests.waiting import PATIENT_SECONDS

MODELS = """
import numpy as np
from spillway import Flagged


class Open:
    def predict(self, batch):
        return [Flagged(query, mine=["open", query["x"]]) if query["x"] % 2 else query for query in batch]


class Left:
    def predict(self, batch):
        return [Flagged({"y": query["x"]}, confidence=np.float32(0.5)) for query in batch]


class Right:
    def predict(self, batch):
        return [Flagged({"y": query["x"]}, variant="small", default=query["x"] == 2) for query in batch]


class Close:
    def initialize(self):
        return {"seen": np.zeros(1, np.int64)}

    def compute(self, state, batch):
        return [Flagged({"z": query["left.y"]}, stale=True) for query in batch]

    def update(self, state, batch, outputs):
        state["seen"][0] += sum(output.flags["stale"] for output in outputs)
        return state
"""


def test_flags_of_both_branches_reach_the_outcome(broker, unique_name, tmp_path):
    module = "flagging_of_" + unique_name.replace("-", "_")
    (tmp_path / f"{module}.py").write_text(MODELS)
    stages = [
        {"name": "open", "model": f"{module}:Open"},
        {"name": "left", "model": f"{module}:Left", "after": "open"},
        {"name": "right", "model": f"{module}:Right", "after": "open", "workers": {"where": "process"}},
        {"name": "close", "model": f"{module}:Close", "after": ["left", "right"], "join": {"mode": "all"},
         "state": {"kind": "shared", "backups": 0}},
    ]  # fmt: skip
    path = tmp_path / "pipeline.yaml"
    path.write_text(yaml.safe_dump({"name": unique_name, "slo": PATIENT_SECONDS, "partitions": 2, "stages": stages}))

    def expected(x):
        flags = {
            "left": {"confidence": 0.5},
            "right": {"variant": "small", "default": x == 2},
            "close": {"stale": True},
        }
        return flags | ({"open": {"mine": ["open", x]}} if x % 2 else {})

    with (
        serving(path, unique_name, broker, tmp_path),
        Client(unique_name, ClientSettings.load(broker), slo=PATIENT_SECONDS, timeout=PATIENT_SECONDS) as client,
    ):
        futures = [client.submit({"x": x}) for x in range(40)]
        assert [future.result(PATIENT_SECONDS).flags for future in futures] == [expected(x) for x in range(40)]
        told = command("predict", path, "--bootstrap", broker, stdin='{"x": 3}')
        assert json.loads(told.stdout)["flags"] == expected(3)
