"""A gate whose transactions are not answered: it connects anew, and says that what stands must be read."""

import threading
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from spillway.agents.live.gate import transaction
from spillway.agents.live.gate.transaction import Aside, Record, TransactionalWriter, Turn
from spillway.lineage.errors import AbortedError, FencedError, SilentError
from spillway.producers.connection import ClientSettings
from tests.modelled_client import Message

SILENCE = KafkaError(KafkaError._TIMED_OUT, "nothing is heard", retriable=True)
FENCED = KafkaError(KafkaError.PRODUCER_FENCED, "another one has the id", fatal=True)
STORED = Message("t", 0, 7, timestamp=(1, 1_700_000_000_250))
TURN = Turn([Record("t", 0, b"k", b"v")], [TopicPartition("in", 0, 1)])


class FakeProducer:
    """Answers each call with the next of the errors that are set for it, and then well."""

    def __init__(self, settings):
        self.settings = settings
        self.errors = {"init": [], "offsets": [], "commit": []}
        self.calls = []
        self.deliveries = []
        self.report = (None, STORED)  # None: nobody reports
        self.first_reports = []  # before it
        self.unsent = 0
        self.nodes = [{1, 2, 3}]  # as the cluster lists them, time after time; None: no answer

    def list_topics(self, _topic, _seconds):
        listed = self.nodes.pop(0) if len(self.nodes) > 1 else self.nodes[0]
        if listed is None:
            raise KafkaException(SILENCE)
        return SimpleNamespace(brokers=dict.fromkeys(listed))

    def _answer(self, call):
        self.calls.append(call)
        errors = self.errors.get(call)
        if errors:
            raise KafkaException(errors[0] if len(errors) == 1 else errors.pop(0))

    def init_transactions(self, _seconds):
        self._answer("init")

    def begin_transaction(self):
        self._answer("begin")

    def produce(self, *_record, on_delivery, **_options):
        self._answer("produce")
        self.deliveries.append(on_delivery)

    def flush(self, _seconds):
        for on_delivery in self.deliveries:
            report = self.first_reports.pop(0) if self.first_reports else self.report
            if report is not None:
                on_delivery(*report)
        self.deliveries.clear()
        self.unsent -= self.unsent > 0
        return self.unsent

    def abort_transaction(self, _seconds):
        self._answer("abort")

    def send_offsets_to_transaction(self, _positions, _group, _seconds):
        self._answer("offsets")

    def commit_transaction(self, _seconds):
        self._answer("commit")

    def purge(self):
        self._answer("purge")


@pytest.fixture
def made(monkeypatch):
    """All producers in their order; tests set the errors of those to come by `plans`."""
    producers = []
    producers_plans = []

    def make(settings, logger):
        producer = FakeProducer(settings)
        if producers_plans:
            producer.errors |= producers_plans.pop(0)
        producers.append(producer)
        return producer

    monkeypatch.setattr(transaction, "Producer", make)
    monkeypatch.setattr(transaction, "_KEPT_SECONDS", 0.01)
    monkeypatch.setattr(transaction, "_SLICE_SECONDS", 0.01)
    make.producers, make.plans = producers, producers_plans
    return make


def writer():
    return TransactionalWriter(ClientSettings.load("b:1").confluent(), "p.gate.0", max_message_bytes=1_000)


def opened():
    gate = writer()
    gate.open(1.0)
    return gate


@pytest.mark.parametrize("call", ["offsets", "commit"])
def test_a_connection_that_is_lost_for_good_is_given_up(made, call):
    made.plans.append({call: [SILENCE]})
    gate = opened()
    with pytest.raises(SilentError, match=r"transaction abandoned: .*could not commit"):
        gate.write(TURN, None, 1.0)
    gate.open(1.0)
    first, second = made.producers
    assert first.calls[-1] == "purge"
    assert second.calls == ["init"], "whose taking the id ends what the first one had open"
    gate.write(TURN, None, 1.0)
    assert second.calls == ["init", "begin", "produce", "offsets", "commit"]


def test_a_process_that_stood_still_asks_again_first(made):
    made.plans.append({"commit": [SILENCE] * 3 + [FENCED]})
    gate = opened()
    with pytest.raises(FencedError):
        gate.write(TURN, None, 0.0)
    assert len(made.producers) == 1


def test_a_fencing_that_was_learned_between_two_calls_is_named(made):
    """`produce` says then that there was a fatal error, without its cause; seen on a broker."""
    made.plans.append({"produce": [KafkaError(KafkaError._FATAL, "Unable to produce message")], "abort": [FENCED]})
    gate = opened()
    with pytest.raises(FencedError, match="another gate has taken its place"):
        gate.write(TURN, None, 1.0)


def test_a_fencing_that_is_raised_beside_a_log_line_is_named(made, monkeypatch):
    """confluent-kafka calls the logger while it is set, and Python makes a SystemError of it; seen on a broker."""

    def flush(_producer, _seconds):
        raise SystemError("returned a result with an exception set") from KafkaException(FENCED)

    monkeypatch.setattr(FakeProducer, "flush", flush)
    gate = opened()
    with pytest.raises(FencedError, match="another gate has taken its place"):
        gate.write(TURN, None, 1.0)
    monkeypatch.setattr(FakeProducer, "flush", Mock(side_effect=SystemError("of another cause")))
    with pytest.raises(SystemError, match="of another cause"):
        gate.write(TURN, None, 1.0)


def test_taking_the_id_is_tried_by_new_connections_too(made):
    made.plans += [{"init": [SILENCE]}, {"init": [SILENCE]}]
    writer().open(60.0)
    assert [producer.calls[-1] for producer in made.producers] == ["purge", "purge", "init"]


def test_it_ends_where_nobody_answers_any_of_them(made):
    made.plans += [{"init": [SILENCE]}] * 10_000
    with pytest.raises(SilentError, match="could not start its transactions"):
        writer().open(0.05)


def test_only_transactions_hold_on_to_the_brokers_they_know(made):
    gate = writer()
    assert gate._producer.settings["metadata.recovery.strategy"] == "none"
    assert "metadata.recovery.strategy" not in ClientSettings.load("b:1").confluent()


@pytest.mark.parametrize(
    ("report", "last", "error"),
    [
        (None, "abort", AbortedError),
        ((KafkaError(KafkaError.NOT_ENOUGH_REPLICAS, "one is missing"), None), "abort", AbortedError),
        # librdkafka's own word: it connects anew
        ((KafkaError(KafkaError._MSG_TIMED_OUT, "too late"), None), "purge", SilentError),
    ],
)
def test_nothing_is_committed_where_a_record_was_not_stored_whatever_a_commit_would_say(made, report, last, error):
    gate = opened()
    made.producers[0].report = report
    with pytest.raises(error, match=r"1 records were not stored .t: (no report|.*too late|.*is missing)"):
        gate.write(Turn([Record("t", 0, b"k", b"v")]), None, 1.0)
    assert made.producers[0].calls[-1] == last
    assert "abort" in made.producers[0].calls
    assert "commit" not in made.producers[0].calls


def test_a_coordinator_that_came_after_the_gate_and_died_is_not_waited_for(made, monkeypatch):
    """A node that was away as the gate connected is known once it is back, and so is missed when it goes again."""
    monkeypatch.setattr(transaction, "_KEPT_SECONDS", 600.0)
    monkeypatch.setattr(transaction, "_LOOK_SECONDS", 0.0)
    gate = writer()
    made.producers[0].nodes = [{1, 3}]
    gate.open(1.0)
    made.producers[0].nodes = [{1, 2, 3}]
    gate.write(TURN, None, 600.0)
    made.producers[0].errors["offsets"] = [SILENCE] * 20 + [FENCED]
    made.producers[0].nodes = [{1, 3}]
    with pytest.raises(SilentError, match=r"could not commit its offsets because a node is gone"):
        gate.write(TURN, None, 600.0)


@pytest.mark.parametrize("listed", [{1, 2, 3}, None, set()])
def test_a_slow_coordinator_is_waited_for(made, monkeypatch, listed):
    monkeypatch.setattr(transaction, "_KEPT_SECONDS", 600.0)
    gate = opened()
    made.producers[0].errors["offsets"] = [SILENCE] * 20 + [FENCED]
    made.producers[0].nodes = [listed]
    with pytest.raises(FencedError):
        gate.write(TURN, None, 600.0)
    assert made.producers[0].calls.count("offsets") == 21


def test_offsets_that_are_answered_late_are_not_sent_twice(made, monkeypatch):
    asked, sent = [], []
    third = threading.Event()
    await_answer = Aside.call

    def noted(aside, call, seconds):
        asked.append(1)
        if len(asked) == 3:
            third.set()
        await_answer(aside, call, seconds)

    def late(*_call):
        sent.append(1)
        assert third.wait(600)

    monkeypatch.setattr(Aside, "call", noted)
    monkeypatch.setattr(transaction, "_KEPT_SECONDS", 60.0)
    gate = opened()
    made.producers[0].send_offsets_to_transaction = late
    gate.write(TURN, None, 60.0)
    assert made.producers[0].calls[-1] == "commit"
    assert len(asked) >= 3
    assert sent == [1]


def test_a_process_that_stood_still_asks_for_its_records_again_first(made):
    gate = opened()
    made.producers[0].unsent = 4  # times that it is asked in vain, though all the time is over
    gate.write(TURN, None, 0.0)
    assert made.producers[0].calls[-1] == "commit"


def test_a_broker_that_does_not_say_whether_it_has_the_records_is_silent(made):
    gate = opened()
    made.producers[0].unsent = 1_000_000
    with pytest.raises(SilentError, match=r"could not write its records .* no answer"):
        gate.write(TURN, None, 1.0)
    assert made.producers[0].calls[-1] == "purge"
    gate.open(1.0)
    gate.write(TURN, None, 1.0)
    assert made.producers[1].calls[-1] == "commit"


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [(SILENCE, SilentError, "could not roll its transaction back"), (FENCED, FencedError, "another gate has taken")],
)
def test_who_asks_for_its_place_and_is_not_given_it_takes_it_from_nobody(made, answer, error, said):
    made.plans.append({"abort": [answer]})
    gate = opened()
    with pytest.raises(error, match=said):
        gate.hold("t", 0.01)
    assert len(made.producers) == 1


def test_who_asks_for_its_place_in_vain_asks_again(made):
    gate = opened()
    made.producers[0].first_reports = [(KafkaError(KafkaError.NOT_ENOUGH_REPLICAS, "not now"), None)]
    gate.hold("t", 5.0)
    assert made.producers[0].calls.count("abort") == 2
