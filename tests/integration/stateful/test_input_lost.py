"""A shard whose input was deleted and made again stops its partitions; one with records deleted unread, that one."""

import pytest

from spillway.lineage.keys import partition_for
from tests.input_damage import delete_records, make_again
from tests.waiting import until

COUNT = """
partitions: 2
stages:
  - name: count
    model: "tests.integration.stateful.models:Count"
    state: keyed
    batching: {max: 8}
"""


def key_of(partition):
    return next(key for key in map(str, range(100)) if partition_for(key.encode(), 2) == partition)


def send(pipeline, partition, count, prefix):
    for number in range(count):
        pipeline.send(f"{prefix}{number}.{partition}", {"x": number}, key_of(partition))
    pipeline.flush()


def stopped(pipeline):
    """A pipeline that has answered ten queries a partition, all of it durable and committed, and is stopped."""
    pipeline.start_all()
    for partition in (0, 1):
        send(pipeline, partition, 10, "a")
    pipeline.await_all()
    for label in [*pipeline.processes]:
        pipeline.stop(label)


@pytest.mark.parametrize("again", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_shard_stops_partitions_whose_next_records_are_gone_and_serves_the_others(states, again):
    pipeline = states(COUNT)
    stopped(pipeline)
    topic = f"{pipeline.name}.ingress"
    if again:
        make_again(pipeline.bootstrap, topic, 2)
    else:
        send(pipeline, 0, 30, "b")
        delete_records(pipeline.bootstrap, topic, {0: 25, 1: 10})
    pipeline.start_all()
    told = f"{topic}[0] is stopped: the next offset to read is 10, but the log "
    for member in ("count.0.0", "count.0.1"):
        text = told + ("ends at 0" if again else "begins at 25: 15 offsets were deleted")
        until(lambda member=member, text=text: text in pipeline.log(member), 90)
        assert (f"{topic}[1] is stopped" in pipeline.log(member)) == again
        assert pipeline.processes[member].poll() is None
    if not again:
        send(pipeline, 1, 10, "c")
        until(lambda: "c9.1" in pipeline.outcomes, 90)
    assert not [each for each in pipeline.outcomes if each.startswith("b")]
