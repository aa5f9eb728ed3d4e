"""An owner whose log cannot be read or written for a while answers again when it can."""

import threading
import time

import pytest

from spillway.agents.supervise import ownership
from spillway.agents.supervise.ownership import Ownership
from spillway.checkpoint import owners
from spillway.checkpoint.owners import Answer, Ask, Claim, Owner
from spillway.lineage.errors import BrokerError
from spillway.lineage.ports import Record
from tests.waiting import until

SLOT = ("p.owners", 0)


class Broker:
    """One log in memory; `down` breaks what is connected, `away` lets nobody connect, and nothing be read."""

    def __init__(self):
        self.log, self.away, self.refused = [], False, 0
        self.connections = []

    def connect(self):
        if self.away:
            self.refused += 1
            raise BrokerError("nobody is there")

    def down(self):
        for each in self.connections:
            each.broken = True

    def words(self, kind):
        return [word for key, value in self.log if isinstance(word := owners.decode(key, value), kind)]


class Sending:
    in_flight = 0

    def __init__(self, broker):
        broker.connect()
        broker.connections.append(self)
        self._broker, self.broken = broker, False

    def send(self, _topic, _partition, key, value):
        if value is not None:
            self._broker.log.append((key, value))

    def serve(self, _seconds=0.0):
        if self.broken:
            raise BrokerError("it is not known what was written")


class Log:
    """The log of a process, which is told what there is whenever it looks."""

    position = 0

    def __init__(self, broker):
        self._broker, self._waiting, self.closed = broker, [], False

    def through(self, post):
        self._post = post
        threading.Thread(target=self._run, daemon=True).start()
        return self

    def follow(self, slot, start, accept, **_told):
        assert (slot, start) == (SLOT, None)
        self._accept = accept
        return self

    def when_read(self, then):
        self._waiting.append(then)

    def shut(self):
        self.closed = True

    def _run(self):
        read = 0
        while not self.closed:
            time.sleep(0.001)
            if self._broker.away:
                continue
            there = self._broker.log[read:]
            records = [
                Record(*SLOT, read + number, 0, log_append=True, key=key, value=value, headers=())
                for number, (key, value) in enumerate(there)
            ]
            read += len(records)
            waiting = self._waiting.copy()
            del self._waiting[: len(waiting)]
            if records or waiting:
                self._post(self._take, records, read)
            for then in waiting:
                self._post(then, read)

    def _take(self, records, position):
        self._accept(records)
        self.position = position


@pytest.fixture
def broker(monkeypatch):
    made = Broker()
    monkeypatch.setattr(ownership, "Sending", lambda *_: Sending(made))
    monkeypatch.setattr(ownership, "KafkaLog", lambda *_: Log(made))
    monkeypatch.setattr(ownership, "_AGAIN", 0.001)
    return made


def test_an_owner_answers_again_after_its_log_was_away(broker):
    owned = Ownership(None, "p", ["gate.0"])
    assert owned.claim()
    owned.keep(bool)
    broker.away = True
    broker.down()
    until(lambda: broker.refused > 2, 60)
    asker = Owner("h", 2, 2.0)
    word = Ask(asker, ("gate.0",))
    broker.log.append((word.key.encode(), owners.encode(word)))
    broker.away = False
    until(lambda: broker.words(Answer), 60)
    assert broker.words(Answer) == [Answer(owned._tenure.claim.epoch, asker.name)], "once, though it read all again"
    confirmed = threading.Event()
    owned.confirm(confirmed.set)
    until(confirmed.is_set, 60)
    owned.leave()
    assert len(broker.connections) == 2
    assert owned._log.closed


def test_a_claim_behind_a_question_that_cannot_be_answered_is_heard(broker):
    owned, other = Ownership(None, "p", ["gate.0"]), Owner("h", 2, 2.0)
    assert owned.claim()
    owned._came += [Ask(other, ("gate.0",)), Claim(owned.epoch + 1, other, ("gate.0",))]
    broker.down()
    with pytest.raises(BrokerError):
        owned._round(bool)
    owned._reconnect()
    owned._round(bool)
    assert owned._tenure.lost_to == other
    owned.leave()
