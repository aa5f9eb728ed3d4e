"""What is seen of a group while the broker leads nothing."""

import pytest
from confluent_kafka.admin import OffsetSpec

from agents.supervise import groups
from producers.connection import ClientSettings

NOBODY = -1001  # the offset of a partition without a leader, said without an error


def look(monkeypatch, begin, end, *, markers=False):
    """The partitions that are seen of a group that has committed 5."""
    monkeypatch.setattr(groups.Admin, "once", lambda _self, question: question(None))
    monkeypatch.setattr(groups.KafkaGroups, "_offsets_of", lambda _self, _group: {0: 5})

    def offsets(_self, _client, _groups, spec):
        return {("g", 0): end if isinstance(spec, type(OffsetSpec.latest())) else begin}

    monkeypatch.setattr(groups.KafkaGroups, "_offsets", offsets)
    watched = groups.Watched("t", (0,), only=0, markers=markers)
    watch = groups.KafkaGroups(ClientSettings.load("127.0.0.1:1"), "p", {"g": watched})
    return set(watch.look(["g"])["g"].partitions)


@pytest.mark.parametrize(("begin", "end", "seen"), [(0, 8, {0}), (NOBODY, 8, set()), (0, NOBODY, set())])
def test_a_partition_without_a_leader_is_not_seen(monkeypatch, begin, end, seen):
    """Else its end would be far below what was read of it."""
    assert look(monkeypatch, begin, end) == seen


@pytest.mark.parametrize(("begin", "end", "seen"), [(5, 8, {0}), (6, 8, set()), (0, 4, set()), (5, 5, {0})])
def test_a_partition_that_is_stopped_for_lost_records_stands_still_by_right(monkeypatch, begin, end, seen):
    """No restart of its reader would move it, and would hold up the others."""
    assert look(monkeypatch, begin, end) == seen


def test_behind_transactions_a_start_above_the_position_does_not_stop_a_partition(monkeypatch):
    assert look(monkeypatch, 6, 8, markers=True) == {0}
