"""What a gate reads of a cluster that does not answer, or answers with nothing."""

from types import SimpleNamespace

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException
from confluent_kafka.admin import OffsetSpec

from agents.live import admin
from agents.live.gate import memory
from agents.live.gate.fencing import OustedError, UnheardError
from agents.live.spans import Span, near, offsets


def test_a_group_that_does_not_answer_is_left_to_another_consumer(monkeypatch):
    """librdkafka has lost the way to the coordinator: a new consumer finds it, this one never does."""
    monkeypatch.setattr(memory, "_GROUP_SECONDS", 0.05)
    asked = []

    def committed(_partitions, timeout):
        asked.append(timeout)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    gate = memory.Memory(
        {}, SimpleNamespace(committed=committed), None, outcomes="o", egress="e", wire=None, inputs=None
    )
    with pytest.raises(UnheardError, match="could not read its committed offsets within 0 s"):
        gate.load(None, [0], 120.0)
    assert asked
    assert issubclass(UnheardError, OustedError)  # which is what a gate joins anew after


class Client:
    """Says what it was told of a partition's end."""

    def __init__(self, end):
        self.end = end

    def list_topics(self, timeout):
        """Answer."""

    def list_offsets(self, wanted, **_options):
        return {place: SimpleNamespace(result=lambda: SimpleNamespace(offset=self.end)) for place in wanted}


def test_a_partition_without_a_leader_has_no_end_below_its_beginning(monkeypatch):
    """The broker, or librdkafka, says -1001 of it, and no error: that a topic had lost its records was read of it."""
    ends = iter([-1001, -1001, 38])
    monkeypatch.setattr(admin, "AdminClient", lambda *_settings, **_options: Client(next(ends)))
    found = offsets(admin.Admin({}), "t", [0], OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED, 30.0)
    assert found == {0: 38}
    assert next(ends, None) is None  # each with a client of its own


def test_offsets_that_lie_near_each_other_are_read_in_one_go():
    assert near([]) == []
    assert near([7, 5, 6]) == [Span(5, 8)]
    assert near([5, 505, 506, 1100], apart=500) == [Span(5, 507), Span(1100, 1101)]
