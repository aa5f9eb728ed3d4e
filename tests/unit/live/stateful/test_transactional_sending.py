"""Transactions of a state whose broker does not answer: they are tried again for a while, and then given up."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from agents.live.stateful import transactions
from agents.live.stateful.transactions import TransactionalSending
from agents.live.states.sending import DeliveryError
from producers.connection import ClientSettings

SILENCE = KafkaError(KafkaError._TIMED_OUT, "nothing is heard", retriable=True)


class Told:
    """A message in its delivery report."""

    def __init__(self, offset):
        self.offset = lambda: offset

    def topic(self):
        return "t"


class SilentProducer:
    """Says so many times that it hears nothing, and of each record what it is given."""

    def __init__(self, times, *reports):
        self.times = times
        self.reports = list(reports)
        self.waiting = []  # for their reports
        self.unsent = 0  # times that a flush leaves something
        self.committed = False

    def init_transactions(self, _seconds):
        pass

    def begin_transaction(self):
        pass

    def produce(self, *_record, on_delivery, **_options):
        self.waiting.append(on_delivery)

    def flush(self, _seconds):
        for on_delivery in self.waiting:
            on_delivery(*self.reports.pop(0))
        self.waiting.clear()
        self.unsent -= self.unsent > 0
        return self.unsent

    def commit_transaction(self, _seconds):
        self.times -= 1
        if self.times >= 0:
            raise KafkaException(SILENCE)
        self.committed = True


def sending(monkeypatch, producer):
    monkeypatch.setattr(transactions, "idempotent_producer", lambda *_arguments: producer)
    made = TransactionalSending(ClientSettings.load("b:1"), "t", "t.0")
    made.begin()
    return made


def test_a_commit_is_tried_again(monkeypatch):
    sending(monkeypatch, SilentProducer(3)).commit()


def test_a_connection_that_is_lost_for_good_ends_the_process(monkeypatch):
    monkeypatch.setattr(transactions, "_WITHIN", 0.01)
    with pytest.raises(DeliveryError, match="nothing is heard"):
        sending(monkeypatch, SilentProducer(10**9)).commit()


@pytest.mark.parametrize(
    ("report", "said"),
    [
        ((KafkaError(KafkaError._MSG_TIMED_OUT, "too late"), Told(-1001)), "2 records: t: .*too late"),
        ((None, Told(-1001)), "2 records: t: its place is unknown"),
    ],
)
def test_nothing_is_committed_where_a_record_was_not_stored(monkeypatch, report, said):
    producer = SilentProducer(0, (None, Told(3)), report, report)
    made = sending(monkeypatch, producer)
    for _ in range(3):
        made.send("t", 0, b"k", b"v")
    with pytest.raises(DeliveryError, match=said):
        made.commit()
    assert not producer.committed


def test_a_commit_waits_for_what_is_under_way(monkeypatch):
    producer = SilentProducer(0)
    made = sending(monkeypatch, producer)
    producer.unsent = 3
    made.commit()
    assert producer.committed
    assert producer.unsent == 0
