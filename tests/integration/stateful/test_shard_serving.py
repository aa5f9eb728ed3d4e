"""One stateful stage on a real broker: it serves, and goes on where its primary, or all of its members, have died."""

from spillway.lineage import reasons
from spillway.lineage.message import FAILED, PREDICTION

COUNT = """
partitions: 4
stages:
  - name: count
    model: tests.integration.stateful.models:Count
    state: keyed
    batching: {max: 8}
"""


def counts_of(pipeline):
    told = {}
    for outcome in pipeline.outcomes.values():
        if outcome.kind == PREDICTION:
            assert outcome.flags == {"count": {"said": outcome.outputs["before"]}}
            told.setdefault(outcome.outputs["x"] % 7, []).append(outcome.outputs["before"])
    return {key: sorted(counts) for key, counts in told.items()}


def test_every_query_has_one_outcome_and_counts_once_whoever_ends_and_one_that_raises_fails_alone(states):
    pipeline = states(COUNT)
    pipeline.start_all()
    first = pipeline.primary("count")
    # Nobody reports this death: silence alone is enough.
    pipeline.send_many(200, during={100: lambda: pipeline.kill(first, report=False)})
    for number in range(60):
        pipeline.send(f"r{number}", {"x": number, **({"raise": 1} if number % 20 == 7 else {})})
    pipeline.await_all()
    second = pipeline.primary("count")
    assert second != first
    pipeline.start("count", int(first[-1]))
    pipeline.await_ready(first)
    pipeline.send_many(50)
    assert pipeline.stop(second) == 0  # it hands over
    pipeline.send_many(50)
    pipeline.await_all()
    assert pipeline.primary("count") == first
    pipeline.start("count", int(second[-1]))
    pipeline.await_ready(second)
    for label in (first, second):
        pipeline.kill(label)
    pipeline.send_many(100)
    for replica in (0, 1):
        pipeline.start("count", replica)
    pipeline.await_all()
    # Within a batch all see the state before it; so a count is never beyond what was asked before.
    for key, counts in counts_of(pipeline).items():
        assert counts[0] == 0, key
        assert all(told <= place for place, told in enumerate(counts)), key
    refused = {f"r{number}" for number in (7, 27, 47)}

    def right(request, kind, told):
        return kind == FAILED and reasons.MODEL_RAISED in told if request in refused else kind == PREDICTION

    assert pipeline.judge(right, refusing=["count"]) == []
