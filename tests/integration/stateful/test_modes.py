"""The ways of replication: each keeps what it promises when its primary is killed."""

from __future__ import annotations

import pytest

MODELS = "tests.integration.stateful.models"
SPEC = """
partitions: 2
stages:
  - name: learn
    model: "tests.integration.stateful.models:Sum"
    state: shared
    max_batch: 8
    replication: {mode}
  - {{name: count, model: "tests.integration.stateful.models:Count", state: keyed, after: learn, max_batch: 8}}
"""


@pytest.mark.parametrize("mode", ["s1", "s2", "remus", "lineage-stash", "kafka-eos"])
def test_a_killed_primary_loses_nothing(states, mode):
    pipeline = states(SPEC.format(mode=mode))
    pipeline.start_all()
    primary = pipeline.primary("learn")
    pipeline.send_many(600, rate=150, during={330: lambda: pipeline.kill(primary)})
    pipeline.await_all()
    assert pipeline.judge() == []
    assert pipeline.primary("learn") != primary
