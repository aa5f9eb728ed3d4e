"""Calls are asked again while what ails them passes, and given up with words."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from lineage.errors import BrokerError
from producers.patience import AnswerTime, patiently


class Broker:
    """Fails with each of `codes` in turn, then answers; time goes on with each call."""

    def __init__(self, monkeypatch, *codes):
        self.codes = list(codes)
        self.now = 0.0
        self.given = []
        monkeypatch.setattr("producers.patience.time.monotonic", lambda: self.now)
        monkeypatch.setattr("producers.patience.time.sleep", lambda seconds: None)

    def ask(self, seconds):
        self.given.append(seconds)
        self.now += seconds
        if self.codes:
            raise KafkaException(KafkaError(self.codes.pop(0)))
        return "answer"


def test_what_passes_is_asked_again(monkeypatch):
    broker = Broker(monkeypatch, KafkaError._TIMED_OUT, KafkaError.NOT_LEADER_FOR_PARTITION)
    assert patiently(broker.ask, "ask", 10) == "answer"


def test_a_request_whose_connection_was_replaced_meanwhile_is_made_again(monkeypatch):
    broker = Broker(monkeypatch, KafkaError._DESTROY_BROKER)  # as where the only broker restarts
    assert patiently(broker.ask, "ask", 10) == "answer"


def test_partitions_without_a_leader_are_waited_for(monkeypatch):
    broker = Broker(monkeypatch, KafkaError._NOENT)  # as where offsets are listed while the only broker starts
    assert patiently(broker.ask, "ask", 10) == "answer"


def test_what_does_not_pass_is_said_at_once(monkeypatch):
    broker = Broker(monkeypatch, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(BrokerError, match=r"could not ask: .*TOPIC_AUTHORIZATION_FAILED"):
        patiently(broker.ask, "ask", 10)


def test_patience_ends(monkeypatch):
    broker = Broker(monkeypatch, *[KafkaError._TRANSPORT] * 100)
    with pytest.raises(BrokerError, match="could not ask within 3 s"):
        patiently(broker.ask, "ask", 3)
    assert broker.now == 3


def test_who_answers_late_is_given_more_time_for_the_next_answer_but_not_beyond_the_end(monkeypatch):
    broker = Broker(monkeypatch, *[KafkaError._TIMED_OUT] * 100)
    with pytest.raises(BrokerError, match="could not ask within 14 s"):
        patiently(broker.ask, "ask", 14)
    assert broker.given == [1, 2, 4, 5, 2]


def test_what_an_answer_took_is_what_the_next_is_expected_to_take():
    given = AnswerTime()
    assert given.seconds == 1
    for _ in range(3):
        given.late()
    assert given.seconds == 5
    given.answered(1.5)
    assert given.seconds == 3
    given.answered(0.001)
    assert given.seconds == 1
