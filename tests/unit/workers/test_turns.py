"""However much one worker sends, the others have their turns."""

import socket
import ssl
from types import SimpleNamespace

import pytest

from spillway.agents.workers.frames import FrameReader, encode
from spillway.agents.workers.links import _TURN_BYTES, _TURN_RECEIPTS, Links

PING = b"".join(bytes(buffer) for buffer in encode({"kind": "ping"}))
LARGE = b"".join(bytes(buffer) for buffer in encode({"kind": "pong", "text": "x" * 3_000_000}))


class Endless(socket.socket):
    """Never blocks and never ends: it says the same again and again."""

    def __init__(self, frame, at_once):
        self.frame, self.at_once, self.at, self.receipts, self.read = frame, at_once, 0, 0, 0

    def recv_into(self, room):
        part = (self.frame * 2)[self.at : self.at + min(self.at_once, len(room), len(self.frame))]
        room[: len(part)] = part
        self.at = (self.at + len(part)) % len(self.frame)
        self.receipts, self.read = self.receipts + 1, self.read + len(part)
        return len(part)


class Decrypted(Endless, ssl.SSLSocket):
    """One that has more of a record to give, as often as `records` says, which would wake nobody."""

    def pending(self):
        return int(self.receipts < self.records)


class Turns:
    def __init__(self, connection):
        self.taken = []
        self.link = SimpleNamespace(worker=0, connection=connection, reader=FrameReader(), heard=0.0)
        self.links = SimpleNamespace(_links={0: self.link}, _take=lambda _, frame: self.taken.append(frame["kind"]))

    def take(self):
        Links._read(self.links, self.link)
        return self.taken


@pytest.mark.parametrize("frame", [PING, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("at_once", [1, 100, 1 << 20, 1 << 30])
def test_a_worker_that_never_stops_sending_has_its_turn_and_no_more(frame, at_once):
    connection = Endless(frame, at_once)
    turns = Turns(connection)
    for _ in range(3):
        receipts, read = connection.receipts, connection.read
        turns.take()
        assert 0 < connection.receipts - receipts <= _TURN_RECEIPTS
        assert 0 < connection.read - read < _TURN_BYTES + len(frame)
    assert len(turns.taken) == connection.read // len(frame)


def test_what_was_decrypted_is_taken_in_the_same_turn():
    connection = Decrypted(PING, 1 << 20)
    connection.records = 3 * _TURN_RECEIPTS
    assert len(Turns(connection).take()) > _TURN_RECEIPTS
    assert connection.receipts == connection.records
