"""An owner whose log cannot be read or written for a while answers again when it can."""

import threading
from types import SimpleNamespace

import pytest

from spillway.agents.supervise import ownership
from spillway.agents.supervise.ownership import Ownership
from spillway.checkpoint import owners
from spillway.checkpoint.owners import Answer, Ask, Owner
from spillway.lineage.errors import BrokerError
from tests.waiting import until

SLOT = ("p.owners", 0)


class Broker:
    """One log in memory; `down` breaks what is connected, `away` lets nobody connect."""

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
        self._broker = broker

    def send(self, _topic, _partition, key, value):
        if value is not None:
            self._broker.log.append((key, value))

    def serve(self, _seconds=0.0):
        pass


class Reading:
    def __init__(self, broker):
        self._broker, self._at = broker, 0
        self.broken = self.closed = False
        broker.connections.append(self)

    def poll(self, _seconds):
        assert not self.closed
        if self.broken:
            raise BrokerError("the log is gone")
        read = [
            SimpleNamespace(
                key=lambda key=key: key, value=lambda value=value: value, offset=lambda offset=offset: offset
            )
            for offset, (key, value) in enumerate(self._broker.log)
            if offset >= self._at
        ]
        self._at = len(self._broker.log)
        return read, {SLOT: self._at}

    def end(self, _slot):
        return len(self._broker.log)

    def heed(self, _quiet, _within):
        pass

    def close(self):
        self.closed = True


@pytest.fixture
def broker(monkeypatch):
    made = Broker()
    monkeypatch.setattr(ownership, "Sending", lambda *_: Sending(made))
    monkeypatch.setattr(ownership, "PartitionReading", lambda *_: Reading(made))
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
    assert [each.closed for each in broker.connections] == [True] * len(broker.connections)
