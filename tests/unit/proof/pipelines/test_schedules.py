"""Random pipelines of stateless stages, by the drivers that ship, under random failures: every promise is kept.

More of them: `spillway prove --kind stateless`. A seed that fails is replayed by `spillway prove --seed N`.
"""

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

from spillway.agents.proof.pipelines.case import Kind
from spillway.agents.proof.pipelines.drawing import drawn
from spillway.agents.proof.pipelines.oracle import judged, prove
from spillway.agents.proof.pipelines.play import Play

FAILED_ONCE = (38,)  # seeds that showed a fault: put one here with the fix


def test_every_promise_is_kept():
    proof = prove([*range(25), *FAILED_ONCE])
    assert proof.failed == {}
    assert sum(proof.struck.values()) > 2 * proof.schedules


@pytest.mark.nightly
def test_every_promise_is_kept_over_many_schedules():
    proof = prove(range(600))
    assert proof.failed == {}
    assert {kind.value for kind in Kind} <= proof.struck.keys()


def test_whatever_a_pipeline_may_have_is_drawn():
    cases = [drawn(seed) for seed in range(300)]
    stages = [stage for case in cases for stage in case.spec["stages"]]
    has = Counter(key for stage in stages for key in stage)
    assert min(has[key] for key in ("join", "choose", "split", "queue", "cache", "default")) > 20, has
    assert min(has[key] for key in ("copies", "coding", "ensemble", "variants")) > 20, has
    assert sum(stage.get("workers", {}).get("where") == "process" for stage in stages) > 20
    rules = {(stage["join"]["mode"], stage["join"]["on_loss"]) for stage in stages if "join" in stage}
    assert rules == {("all", "drop"), ("all", "partial"), ("any", "drop")}
    assert {case.spec.get("sinks") for case in cases} == {None, "any", "all"}
    assert {len(case.spec["stages"]) for case in cases} == {1, 2, 3, 4, 5, 6}
    assert {kind for case in cases for kind in {fault.kind for fault in case.faults}} == set(Kind)


def test_the_same_seed_makes_the_same_run_whatever_python_hashes_by():
    code = (
        "import json, logging; logging.disable(logging.CRITICAL)\n"
        "from spillway.agents.proof.pipelines.drawing import drawn\n"
        "from spillway.agents.proof.pipelines.play import Play\n"
        "print(json.dumps([Play(drawn(seed), seed).run().digest for seed in (1, 2, 3, 4, 5)]))\n"
    )
    other = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert json.loads(other.stdout) == [Play(drawn(seed), seed).run().digest for seed in (1, 2, 3, 4, 5)]


def test_what_a_run_raises_is_its_problem(monkeypatch):
    def broken(*_):
        raise KeyError("broken")

    monkeypatch.setattr("spillway.agents.run.stage.Stage.commits", broken)
    _, found = judged(drawn(1), 1)
    assert "KeyError" in found[0]
