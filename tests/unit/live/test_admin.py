"""A client that asks a cluster is kept while it is answered, and replaced where it was not."""

from types import SimpleNamespace

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException
from confluent_kafka.admin import OffsetSpec

from spillway.agents.live import admin
from spillway.agents.live.gate import pulled_input
from spillway.agents.live.gate.blocking import complete
from spillway.agents.live.gate.fencing import UnheardError
from spillway.agents.live.gate.pulled_input import KafkaPulledInput
from spillway.agents.live.spans import near, offsets
from spillway.lineage.errors import BrokerError, OustedError
from spillway.lineage.ports import Bounds
from spillway.producers.patience import UnansweredError


class Client:
    """Answers with its number, unless the cluster is away."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.number = len(cluster.clients)
        cluster.clients.append(self)

    def list_topics(self, timeout):
        self.cluster.asked.append("metadata")
        if timeout < self.cluster.takes:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        if self.cluster.away:
            self.cluster.away -= 1
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def answer(self):
        self.cluster.asked.append("answer")
        if self.cluster.refusals:
            raise self.cluster.refusals.pop()
        return self.number


class Cluster:
    def __init__(self):
        self.clients = []
        self.asked = []
        self.away = 0
        self.takes = 0.1  # seconds for its metadata
        self.refusals = []


@pytest.fixture
def cluster(monkeypatch):
    made = Cluster()
    monkeypatch.setattr(admin, "AdminClient", lambda *_settings, **_options: Client(made))
    return made


def test_a_client_that_is_answered_is_asked_again(cluster):
    asks = admin.Admin({})
    assert [asks.ask(Client.answer, "ask", 30.0) for _ in range(3)] == [0, 0, 0]


def test_nothing_is_asked_of_a_broker_that_does_not_give_its_metadata(cluster):
    """An admin request that times out may end the process."""
    cluster.away = 2
    assert admin.Admin({}).ask(Client.answer, "ask", 30.0) == 2
    assert cluster.asked == ["metadata"] * 3 + ["answer"]


def test_a_broker_that_takes_seconds_is_heard(cluster):
    """Asked in slices of a second, by a client of its own each time, it never was."""
    cluster.takes = 3.0
    assert admin.Admin({}).ask(Client.answer, "ask", 0.2) == 0


def test_a_client_that_has_failed_is_not_asked_again(cluster):
    asks = admin.Admin({})
    cluster.refusals = [KafkaException(KafkaError(KafkaError._TIMED_OUT))]
    with pytest.raises(KafkaException):
        asks.once(Client.answer)
    assert asks.once(Client.answer) == 1


def test_what_does_not_pass_is_said_at_once(cluster):
    cluster.refusals = [KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))]
    with pytest.raises(BrokerError, match=r"could not list the offsets of t: .*TOPIC_AUTHORIZATION_FAILED") as caught:
        admin.Admin({}).ask(Client.answer, "list the offsets of t", 30.0)
    assert not isinstance(caught.value, UnansweredError)


def test_patience_ends(cluster):
    cluster.away = 10**6
    with pytest.raises(UnansweredError, match="could not ask within 0 s"):
        admin.Admin({}).ask(Client.answer, "ask", 0.05)


# What a gate reads of a cluster that does not answer, or answers with nothing.


def test_a_group_that_does_not_answer_is_left_to_another_consumer(monkeypatch):
    """librdkafka has lost the way to the coordinator: a new consumer finds it, this one never does."""
    monkeypatch.setattr(pulled_input, "_GROUP_SECONDS", 0.05)
    asked = []

    def committed(_partitions, timeout):
        asked.append(timeout)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    asking = KafkaPulledInput("o", {"group.instance.id": "p.gate.0"}, None)
    asking._consumer = SimpleNamespace(committed=committed)
    with pytest.raises(UnheardError, match="could not read its committed offsets within 0 s"):
        complete(asking.positions([0]))
    assert asked
    assert issubclass(UnheardError, OustedError)  # which is what a gate joins anew after


class EndClient:
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
    monkeypatch.setattr(admin, "AdminClient", lambda *_settings, **_options: EndClient(next(ends)))
    found = offsets(admin.Admin({}), "t", [0], OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED, 30.0)
    assert found == {0: 38}
    assert next(ends, None) is None  # each with a client of its own


def test_offsets_that_lie_near_each_other_are_read_in_one_go():
    assert near([]) == []
    assert near([7, 5, 6]) == [Bounds(5, 8)]
    assert near([5, 505, 506, 1100], apart=500) == [Bounds(5, 507), Bounds(1100, 1101)]
