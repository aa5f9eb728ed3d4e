"""A stage whose input lost what it needs next stops that partition, says so, and serves the others."""

from spillway.lineage.keys import partition_for
from tests.input_damage import commit_ahead, delete_records

PARTITIONS = 4


def send(one, partition, count, prefix):
    some = (f"{prefix}{n}" for n in range(1_000))
    ids = [each for each in some if partition_for(each.encode(), PARTITIONS) == partition][:count]
    for request_id in ids:
        one.send(request_id, {"x": 3})
    one.flush()
    return set(ids)


def answered(out):
    return {told.request_id for told, _ in out.outcomes()}


def served(one, until):
    """One stage that has answered and committed 10 queries a partition, and is stopped."""
    process = one.start("square")
    out = one.reader("outcomes")
    ids = set().union(*(send(one, partition, 10, "a") for partition in range(PARTITIONS)))
    out.wait(len(ids))
    until(lambda: one.committed("square") == one.ends())
    one.stop(process)
    return out, ids


def test_partitions_that_lost_records_unread_or_end_below_what_is_committed_stop_and_no_others(stage, until):
    one = stage()
    topic = f"{one.name}.ingress"
    out, before = served(one, until)
    send(one, 1, 30, "b")
    kept = send(one, 2, 30, "b")
    delete_records(one.bootstrap, topic, {1: 25, 0: 10, 2: 10})  # of 0 and 2 what is done alone
    commit_ahead(one.bootstrap, f"{one.name}.square", topic, {3: 5000})
    one.start("square")
    for text in ("[1] is stopped: the next offset to read is 10, but the log begins at 25: 15 offsets",
                 "[3] is stopped: the next offset to read is 5000, but the log ends at 1"):  # fmt: skip
        until(lambda text=topic + text: text in one.log("square"))
    kept |= send(one, 0, 5, "c")
    send(one, 3, 4, "c")
    out.wait(len(before | kept))
    out.settle()
    assert answered(out) == before | kept
    assert one.metrics("square")["spillway_stopped_at_offset"] == 10 + 5000
    assert one.committed("square")[1] == 10
    assert one.log("square").count("is stopped") == 2
    assert "--reset-offsets" in one.log("square")
