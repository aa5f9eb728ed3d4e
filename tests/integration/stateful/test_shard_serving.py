"""One stateful stage on a real broker: it serves, and goes on where its primary, or all of its members, have died."""

import pytest

from spillway.lineage.message import FAILED, PREDICTION

COUNT = """
partitions: 4
stages:
  - name: count
    model: tests.integration.stateful.models:Count
    state: {{kind: keyed, replication: {mode}}}
    batching: {{max: 8}}
"""


@pytest.fixture
def count(states):
    return lambda mode="nspb": states(COUNT.format(mode=mode))


def counts_of(pipeline):
    told = {}
    for outcome in pipeline.outcomes.values():
        told.setdefault(outcome.outputs["x"] % 7, []).append(outcome.outputs["before"])
    return {key: sorted(counts) for key, counts in told.items()}


def test_every_query_has_one_outcome_and_counts_once(count):
    pipeline = count()
    pipeline.start_all()
    pipeline.send_many(300)
    pipeline.await_all()
    assert pipeline.judge() == []
    # Within a batch all see the state before it; so a count is never beyond what was asked before.
    for key, counts in counts_of(pipeline).items():
        assert counts[0] == 0, key
        assert all(told <= place for place, told in enumerate(counts)), key


def test_a_killed_primary_is_followed_by_the_backup(count):
    pipeline = count()
    pipeline.start_all()
    primary = pipeline.primary("count")
    pipeline.send_many(400, during={200: lambda: pipeline.kill(primary)})
    pipeline.await_all()
    assert pipeline.judge() == []
    assert pipeline.primary("count") != primary


def test_silence_alone_is_enough(count):
    pipeline = count()
    pipeline.start_all()
    primary = pipeline.primary("count")
    pipeline.send_many(200, during={100: lambda: pipeline.kill(primary, report=False)})
    pipeline.await_all()
    assert pipeline.judge() == []


def test_both_members_die_and_come_again(count):
    pipeline = count()
    pipeline.start_all()
    pipeline.send_many(200)
    for label in ("count.0.0", "count.0.1"):
        pipeline.kill(label)
    pipeline.send_many(100)
    for replica in (0, 1):
        pipeline.start("count", replica)
    pipeline.await_all()
    assert pipeline.judge() == []


def test_a_primary_that_is_stopped_hands_over(count):
    pipeline = count()
    pipeline.start_all()
    primary = pipeline.primary("count")
    pipeline.send_many(100)
    assert pipeline.stop(primary) == 0
    pipeline.send_many(100)
    pipeline.await_all()
    assert pipeline.primary("count") != primary
    assert pipeline.judge() == []


def test_a_query_that_raises_fails_alone(count):
    pipeline = count()
    pipeline.start_all()
    for number in range(60):
        pipeline.send(f"r{number}", {"x": number, **({"raise": 1} if number % 20 == 7 else {})})
    pipeline.await_all()
    kinds = {request: outcome.kind for request, outcome in pipeline.outcomes.items()}
    assert {request for request, kind in kinds.items() if kind == FAILED} == {"r7", "r27", "r47"}
    assert sum(kind == PREDICTION for kind in kinds.values()) == 57
