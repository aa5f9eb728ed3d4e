"""What is seen of a group while the broker leads nothing."""

import pytest
from confluent_kafka.admin import OffsetSpec

from agents.supervise import groups
from producers.connection import ClientSettings

NOBODY = -1001  # the offset of a partition without a leader, said without an error


@pytest.mark.parametrize(("begin", "end", "seen"), [(0, 8, {0}), (NOBODY, 8, set()), (0, NOBODY, set())])
def test_a_partition_without_a_leader_is_not_seen(monkeypatch, begin, end, seen):
    """Else its end would be far below what was read of it."""

    monkeypatch.setattr(groups.Admin, "once", lambda _self, question: question(None))
    monkeypatch.setattr(groups.KafkaGroups, "_offsets_of", lambda _self, _group: {0: 5})

    def offsets(_self, _client, _groups, spec):
        return {("g", 0): end if isinstance(spec, type(OffsetSpec.latest())) else begin}

    monkeypatch.setattr(groups.KafkaGroups, "_offsets", offsets)
    watch = groups.KafkaGroups(ClientSettings.load("127.0.0.1:1"), "p", {"g": groups.Watched("t", (0,), only=0)})
    assert watch.look(["g"])["g"].partitions.keys() == seen
