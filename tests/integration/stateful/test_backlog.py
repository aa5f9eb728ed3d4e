"""Primaries that die while thousands of queries wait, and reading has stopped wherever there was no more room."""

import pytest

from tests.waiting import until

# The newest query first: what a version covers then has holes, and ends far beyond where the next reign begins to read.
SUM = """
partitions: 1
policy: "benchmarks.pard.rivals:HighBudgetFirst"
stages:
  - name: sum
    model: tests.integration.stateful.models:Sum
    state: {{kind: shared, replication: {mode}}}
    batching: {{max: 8}}
    queue: 64
"""


@pytest.mark.parametrize("mode", ["nspb", pytest.param("lineage-stash", marks=pytest.mark.nightly)])
def test_primaries_that_die_one_after_the_other_in_a_backlog(states, mode):
    pipeline = states(SUM.format(mode=mode))
    pipeline.start_all()
    pipeline.send_many(3_000, rate=1e9)
    for answered in (1_000, 2_000):
        until(lambda at=answered: len(pipeline.outcomes) >= at, 120, f"{answered} outcomes")
        primary = pipeline.primary("sum")
        pipeline.kill(primary)
        pipeline.start("sum", int(primary[-1]))
    pipeline.await_all()
    assert pipeline.judge() == []
    assert not pipeline.twice
