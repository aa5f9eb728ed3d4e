"""Ensembles and variants in this process: members' caches, and which variant answers what a query needs."""

from spillway import Pipeline
from spillway.lineage import metric_names as names

from . import served_models

MODELS = served_models.__name__
CACHED = f"""
name: p
slo: 10s
stages:
  - name: f
    ensemble:
      selection: exp4
      members:
        known: {{model: "{MODELS}:Counts", cache: {{bytes: 1MiB}}}}
        other: {{model: "{MODELS}:Counts", arguments: {{away: 1}}, cache: {{bytes: 1MiB}}}}
"""
DIGITS = f"""
name: p
slo: 30s
stages:
  - name: digit
    variants:
      app: digits
      scale: false
      of:
        tree: {{model: "{MODELS}:Pass", architecture: tree, accuracy: .8, takes: {{1: 1ms, 8: 2ms}}, batch: 8}}
        linear: {{model: "{MODELS}:Tells", architecture: linear, accuracy: .93, takes: {{1: 10s}}}}
        absent:
          {{model: "{MODELS}:Pass", architecture: forest, accuracy: .99, takes: {{1: 1ms}}, workers: {{count: 0}}}}
"""


def test_a_second_identical_query_is_answered_by_the_members_caches(served):
    pipeline = served(Pipeline.parse(CACHED))
    first, second = (pipeline.predict({"x": 5}) for _ in range(2))
    assert first.flags["f"]["members"]["other"]["answer"] == "5-2"
    assert second.flags["f"]["members"] == first.flags["f"]["members"]
    assert (second.kind, second.outputs) == ("prediction", {"label": "5-1"})
    counted = pipeline.metrics("f")
    assert counted[names.MEMBER_CACHE_HITS_TOTAL] == counted[names.MEMBER_CACHE_MISSES_TOTAL] == 2
    assert counted[names.BATCHED_QUERIES_TOTAL] == 2  # one of each member


def test_each_query_is_answered_by_a_variant_that_fits_and_the_outcome_says_by_which(served):
    pipeline = served(Pipeline.parse(DIGITS))
    asked = {
        "fast": {"latency": "5s"},
        "exact": {"accuracy": "90%"},
        "named": {"model": "linear"},
        "none": {},
        "neither": {"latency": 5, "accuracy": 0.93},
        "typo": {"latensy": 1},
        "stranger": {"app": "faces"},
    }
    sent = {name: pipeline.submit({"x": 1}, needs, deadline=60.0) for name, needs in asked.items()}
    told = {name: pending.result() for name, pending in sent.items()}
    flags = {name: outcome.flags.get("digit") for name, outcome in told.items()}
    lost = {name: outcome.kind for name, outcome in told.items() if outcome.kind != "prediction"}
    assert lost == {"typo": "failed", "stranger": "failed"}
    assert told["typo"].reason == "bad-input"
    assert "latensy" in told["typo"].text
    assert told["exact"].flags["digit"]["confidence"] == 0.5  # as the model says
    why = flags["fast"].pop("why")
    assert why["of"]["tree"][0] == "active"
    assert why["others"] == 0
    assert flags["fast"] == {
        "variant": "tree", "architecture": "tree", "accuracy": 0.8, "found": "active", "asked": {"latency": 5.0},
        "met": True,
    }  # fmt: skip
    found = {name: (each["variant"], each["met"]) for name, each in flags.items() if each}
    assert found.pop("none")[1]
    assert found == {
        "fast": ("tree", True), "exact": ("linear", True), "named": ("linear", True), "neither": ("tree", False),
    }  # fmt: skip
    assert flags["neither"]["found"] == "closest"
    assert pipeline.metrics("digit")[names.VARIANT_ANSWERED_TOTAL] == 5
    assert pipeline.metrics("digit")[names.VARIANT_WORKERS] == 2
