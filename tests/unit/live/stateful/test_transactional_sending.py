"""Transactions of a state whose broker does not answer: they are tried again for a while, and then given up."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from agents.live.stateful import transactions
from agents.live.stateful.transactions import TransactionalSending
from agents.live.states.sending import DeliveryError
from producers.connection import ClientSettings

SILENCE = KafkaError(KafkaError._TIMED_OUT, "nothing is heard", retriable=True)


class SilentProducer:
    """Says so many times that it hears nothing."""

    def __init__(self, times):
        self.times = times

    def init_transactions(self, _seconds):
        pass

    def begin_transaction(self):
        pass

    def commit_transaction(self, _seconds):
        self.times -= 1
        if self.times >= 0:
            raise KafkaException(SILENCE)


def sending(monkeypatch, times):
    monkeypatch.setattr(transactions, "idempotent_producer", lambda *_arguments: SilentProducer(times))
    made = TransactionalSending(ClientSettings.load("b:1"), "t", "t.0")
    made.begin()
    return made


def test_a_commit_is_tried_again(monkeypatch):
    sending(monkeypatch, 3).commit()


def test_a_connection_that_is_lost_for_good_ends_the_process(monkeypatch):
    monkeypatch.setattr(transactions, "_WITHIN", 0.01)
    with pytest.raises(DeliveryError, match="nothing is heard"):
        sending(monkeypatch, 10**9).commit()
