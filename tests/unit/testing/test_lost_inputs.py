"""Records that are deleted before a stage or the gate has read them stop their partition, and no other."""

import pytest

from spillway import Pipeline
from spillway.lineage import metric_names as names
from spillway.lineage.keys import partition_for

PIPELINE = "name: p\nslo: 600s\npartitions: 3\nstages:\n  - {name: a, emulated: {alpha: 1ms}}\n"


def ask(pipeline, count):
    sent = [pipeline.submit({"x": x}) for x in range(count)]
    pipeline.sleep(20.0)
    return [(partition_for(pending.query.key, 3), pending) for pending in sent]


@pytest.mark.parametrize(("name", "topic"), [("a", "p.ingress"), ("gate", "p.outcomes")])
@pytest.mark.parametrize("goes_on", [True, False], ids=["which goes on", "which dies"])
def test_records_deleted_while_a_process_stands_still_stop_their_partition(served, name, topic, goes_on, caplog):
    pipeline = served(Pipeline.parse(PIPELINE))
    assert all(pending.outcome is not None for _, pending in ask(pipeline, 30))
    broker = pipeline._world.broker
    position = broker.end((topic, 1))
    pipeline.stop(name)
    lost = ask(pipeline, 600)
    begins = broker.end((topic, 1)) - 2
    broker.delete_before((topic, 1), begins)
    (pipeline.go_on if goes_on else pipeline.kill)(name)
    ask(pipeline, 1)
    assert (
        f"{topic}[1] is stopped: the next offset to read is {position}, but the log begins at {begins}" in caplog.text
    )
    assert "[0] is stopped" not in caplog.text
    assert pipeline.metrics(name, partition="1")[names.STOPPED_AT_OFFSET] == position
    later = ask(pipeline, 30)
    for partition, pending in [*lost, *later]:
        assert (pending.outcome is None) == (partition == 1)
