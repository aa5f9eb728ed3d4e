"""A stage that keeps its state for itself, and one with a state that joins."""

import signal

import pytest

from spillway.lineage.message import PREDICTION
from tests.waiting import until

MODELS = "tests.integration.stateful.models"
BARE = f"""
partitions: 2
stages:
  - {{name: count, model: "{MODELS}:Count", state: {{kind: keyed, replication: none}}, batching: {{max: 8}}}}
"""
JOINED = f"""
partitions: 2
policy: naive
stages:
  - {{name: left, model: "{MODELS}:Pass", batching: {{max: 8}}}}
  - {{name: right, model: "{MODELS}:Pass", batching: {{max: 8}}}}
  - {{name: joined, model: "{MODELS}:Joined", state: shared, batching: {{max: 8}}, after: [left, right]}}
"""


def test_without_replication_a_stage_serves_as_any_other(states):
    pipeline = states(BARE)
    pipeline.start_all()
    pipeline.send_many(100)
    pipeline.await_all()
    assert not pipeline.twice
    told = [outcome.outputs["before"] for outcome in pipeline.outcomes.values() if outcome.outputs["x"] % 7 == 0]
    assert max(told) <= 14


@pytest.mark.parametrize("dies", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_branch_that_is_away_costs_a_stateful_join_no_answers(states, dies):
    """What waits keeps no payloads here, and is far more than a member keeps else; the primary dies meanwhile, or not.

    Without values in the member's tail each is read again from the log.
    """
    bounds = {"payload_bytes": 0, "most_records": 40, "value_bytes": 500}
    pipeline = states(JOINED)
    labels = [pipeline.start(name) for name in ("gate", "left", "right")]
    labels += [pipeline.start("joined", member, **bounds) for member in (0, 1)]
    for label in labels:
        pipeline.await_ready(label)
    primary = pipeline.primary("joined")
    pipeline.processes["left.0"].send_signal(signal.SIGSTOP)
    pipeline.send_many(200)
    if dies:
        pipeline.kill(primary)
        primary = until(lambda: (new := pipeline.primary("joined")) != primary and new, 60)
    pipeline.processes["left.0"].send_signal(signal.SIGCONT)
    pipeline.await_all()
    assert {outcome.kind for outcome in pipeline.outcomes.values()} == {PREDICTION}
    assert {outcome.outputs.get("sum") for outcome in pipeline.outcomes.values()} == {2 * x for x in range(200)}
    assert pipeline.processes[primary].poll() is None
    assert pipeline.judge() == []
