"""A compacted topic as a table, and the sizes of a pipeline in it, on a real broker."""

import pytest

from spillway.agents.live.sizes import Sizes
from spillway.lineage.errors import BrokerError
from spillway.producers.table import Table, write
from spillway.topology.sizes import Size, decode, encode, key_of
from tests.integration.conftest import make_topics
from tests.waiting import PATIENT_SECONDS, until

KEY = key_of("a")


@pytest.fixture
def topic(broker, unique_name):
    name = f"{unique_name}.sizes"
    make_topics(broker, {name: 1}, **{"cleanup.policy": "compact"})
    return name


def size(count, epoch, digest="d"):
    return Size(count, "me", "", 5.0, epoch, digest)


def test_the_newest_value_of_each_key_is_read_and_changes_are_followed(settings, topic):
    write(settings, topic, {b"a": b"1", b"b": b"1", b"gone": b"1"})
    write(settings, topic, {b"a": b"2", b"gone": None})
    changes = []
    with Table(settings, topic, lambda *change: changes.append(change)) as table:
        assert table.rows(PATIENT_SECONDS) == {b"a": b"2", b"b": b"1"}
        assert not table.stale
        del changes[:]
        write(settings, topic, {b"a": b"3", b"b": b"1"})
        write(settings, topic, {b"b": None})
        until(lambda: changes == [(b"a", b"3"), (b"b", None)], 30.0)
        assert table.require() == {b"a": b"3"}


def test_partitions_that_are_followed_change(settings, broker, unique_name):
    topic = f"{unique_name}.rows"
    make_topics(broker, {topic: 3})
    write(settings, topic, {b"%d" % number: b"1" for number in range(30)})
    changes = []
    with Table(settings, topic, lambda key, value: changes.append((key, value)), ()) as table:
        table.wait(PATIENT_SECONDS)
        assert (table.stale, table.rows()) == (False, {})
        found = []
        for partition in range(3):
            table.follow([partition])
            table.wait(PATIENT_SECONDS)
            found.append(table.require())  # of these alone
        assert sorted(key for rows in found for key in rows) == sorted(b"%d" % number for number in range(30))
        assert all(0 < len(rows) < 30 for rows in found)
        del changes[:]
        table.follow([2, 0])
        table.wait(PATIENT_SECONDS)
        assert table.require() == found[2] | found[0]
        assert dict(changes) == found[0]  # what was known stays as it is
        table.follow([0, 2])
        assert not table.stale


def test_a_topic_that_is_not_there_makes_a_stale_table_that_heals(settings, broker, unique_name):
    with Table(settings, f"{unique_name}.late") as table:
        assert table.rows(PATIENT_SECONDS) == {}
        assert table.stale
        with pytest.raises(BrokerError, match="is it running there"):
            table.require(PATIENT_SECONDS)
        make_topics(broker, {f"{unique_name}.late": 1})
        write(settings, f"{unique_name}.late", {b"a": b"1"})
        until(lambda: not table.stale, 30.0)
        assert table.require() == {b"a": b"1"}


def test_a_lower_epoch_is_ignored_and_written_over_by_who_keeps_the_key(settings, topic, unique_name):
    with Sizes(settings, unique_name, keeps=KEY) as keeper, Sizes(settings, unique_name) as reader:
        keeper.require()
        keeper.write({KEY: size(3, 7)})
        until(lambda: keeper.newest(0.0) == reader.newest(0.0) == {KEY: size(3, 7)}, 30.0)
        write(settings, topic, {KEY: encode(size(9, 6))})
        with Table(settings, topic) as table:
            until(lambda: decode(table.rows()[KEY]) == size(3, 7), 30.0)
        assert keeper.newest(0.0) == reader.newest(0.0) == {KEY: size(3, 7)}


def test_rubbish_is_passed_over(settings, topic, unique_name, caplog):
    write(settings, topic, {KEY: b"{", b"\xff": b"\xff"})
    write(settings, topic, {key_of("b"): encode(size(2, 1))})
    with Sizes(settings, unique_name) as reader:
        assert reader.require() == {key_of("b"): size(2, 1)}
    assert "is ignored: the record: Invalid JSON" in caplog.text
