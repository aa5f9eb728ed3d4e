"""The ways of replication: each keeps what it promises when its primary is killed."""

import signal

import pytest

MODELS = "tests.integration.stateful.models"
SPEC = """
partitions: 2
stages:
  - name: learn
    model: "tests.integration.stateful.models:Sum"
    state: {{kind: shared, replication: {mode}}}
    batching: {{max: 8}}
  - {{name: count, model: "tests.integration.stateful.models:Count", after: learn, batching: {{max: 8}},
     state: {{kind: keyed, backups: 0}}}}
"""


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["lineage-stash", "kafka-eos", "s1", "s2", "remus"])
def test_a_killed_primary_loses_nothing(states, mode):
    pipeline = states(SPEC.format(mode=mode))
    pipeline.start_all()
    primary = pipeline.primary("learn")
    pipeline.send_many(300, rate=150, during={160: lambda: pipeline.kill(primary)})
    pipeline.await_all()
    assert pipeline.judge() == []
    assert pipeline.primary("learn") != primary


@pytest.mark.nightly
def test_a_primary_dies_amid_its_transaction(states):
    pipeline = states(SPEC.format(mode="kafka-eos"))
    labels = [pipeline.start("gate"), pipeline.start("learn", 0, crash="after-chunks:15")]
    pipeline.await_ready(labels[1])
    pipeline.primary("learn")
    labels += [pipeline.start("learn", 1), pipeline.start("count", 0)]
    for label in labels:
        pipeline.await_ready(label)
    pipeline.send_many(300, rate=150)
    assert pipeline.processes["learn.0.0"].wait(600) == -signal.SIGKILL
    pipeline.await_all()
    assert pipeline.judge() == []
