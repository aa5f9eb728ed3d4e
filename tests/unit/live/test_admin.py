"""A client that asks a cluster is kept while it is answered, and replaced where it was not."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from agents.live import admin
from lineage.errors import BrokerError
from producers.patience import UnansweredError


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
