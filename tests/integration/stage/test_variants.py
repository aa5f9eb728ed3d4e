"""Variants of one application, served: a query says what it needs, and the one that fits answers."""

import numpy as np
import psutil
import pytest

PIPELINE = """
partitions: 4
stages:
  - name: digit
    variants:
      app: digits
      of:
        tree:
          model: "variants:Tree"
          architecture: tree
          accuracy: .8
          takes: {1: 1ms, 8: 2ms}
          batch: 8
        linear:
          model: "variants:Linear"
          architecture: linear
          accuracy: .93
          takes: {1: 10s}
        absent:
          model: "variants:Tree"
          architecture: forest
          accuracy: .99
          takes: {1: 1ms}
          workers: {count: 0}
"""
MODELS = """
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

PIXELS, LABELS = load_digits(return_X_y=True)


class Trained:
    def __init__(self):
        self.model = self.make().fit(PIXELS[:1000], LABELS[:1000])

    def predict(self, batch):
        return [{"label": int(label)} for label in self.model.predict([query["pixels"] for query in batch])]


class Tree(Trained):
    def make(self):
        return DecisionTreeClassifier(random_state=0)


class Linear(Trained):
    def make(self):
        return LogisticRegression(max_iter=300)
"""


@pytest.fixture
def served(stage, until):
    one = stage(PIPELINE)
    (one.folder / "variants.py").write_text(MODELS)
    one.process = psutil.Process(one.start("digit").pid)
    until(lambda: one.metrics("digit").get("spillway_variant_workers") == 2)
    return one


def test_each_query_is_answered_by_a_variant_that_fits_and_the_outcome_says_by_which(served, until):
    from sklearn.datasets import load_digits

    pixels, _ = load_digits(return_X_y=True)
    asked = {
        "fast": {"latency": "5s"},
        "exact": {"accuracy": "90%"},
        "named": {"model": "linear"},
        "none": {},
        "neither": {"latency": 5, "accuracy": 0.93},
        "typo": {"latensy": 1},
        "stranger": {"app": "faces"},
    }
    out = served.reader("outcomes")
    for name, needs in asked.items():
        served.send(name, {"pixels": np.asarray(pixels[0])}, parameters=needs)
    served.flush()
    out.wait(len(asked), 15)
    told = {headers.request_id: outcome for headers, outcome in out.outcomes()}
    flags = {name: outcome.flags.get("digit") for name, outcome in told.items()}
    assert {name: each.kind for name, each in told.items() if each.kind != "prediction"} == {
        "typo": "failed",
        "stranger": "failed",
    }
    assert told["typo"].reason == "bad-input"
    assert "latensy" in told["typo"].text
    assert told["exact"].outputs == {"label": 0}
    assert flags["fast"] == {
        "variant": "tree",
        "architecture": "tree",
        "accuracy": 0.8,
        "found": "active",
        "asked": {"latency": 5.0},
        "met": True,
    }
    found = {name: (each["variant"], each["met"]) for name, each in flags.items() if each}
    assert found.pop("none")[1]
    assert found == {
        "fast": ("tree", True),
        "exact": ("linear", True),
        "named": ("linear", True),
        "neither": ("tree", False),
    }
    assert flags["neither"]["found"] == "closest"
    until(lambda: served.committed("digit") == served.ends())
    metrics = served.metrics("digit")
    assert metrics["spillway_variant_answered_total"] == 5
    assert metrics["spillway_variant_workers"] == 2
