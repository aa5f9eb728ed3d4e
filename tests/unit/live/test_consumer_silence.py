"""A broker that stands still is given up; one that is slow, or that waits on purpose, is not."""

from __future__ import annotations

import asyncio
from collections import deque
from types import SimpleNamespace

import pytest
from aiokafka.errors import RequestTimedOutError

from agents.live.consumer import thread
from agents.live.consumer.thread import hang_up_on_silence

SECONDS = 0.01


class FetchRequest:
    pass


class JoinGroupRequest:
    pass


class Connection:
    """Stands for aiokafka's: what it is asked is answered by the test."""

    host, port = "127.0.0.1", 1

    def __init__(self):
        self._requests = deque()
        self._reader = SimpleNamespace(_buffer=b"")
        self.closed = False

    def send(self, request, expect_response=True):
        answer = asyncio.get_running_loop().create_future()
        self._requests.append((len(self._requests), request, answer))
        return answer

    def close(self, reason):
        self.closed = True


def client(connection):
    forced = []

    async def get(_node, **_options):
        return await connection() if callable(connection) else connection

    made = SimpleNamespace(_get_conn=get, force_metadata_update=lambda: forced.append(1), forced=forced)
    hang_up_on_silence(made, SECONDS)
    return made


def test_a_silent_broker_is_hung_up_on():
    async def ask():
        connection = Connection()
        made = await client(connection)._get_conn(1)
        with pytest.raises(RequestTimedOutError, match="FetchRequest"):
            await made.send(FetchRequest())
        return connection

    assert asyncio.run(ask()).closed


def test_one_that_sends_byte_by_byte_is_not(monkeypatch):
    async def ask():
        connection = Connection()
        looks = iter(range(20))

        async def came(waiting, _seconds):
            if next(looks) < 19:
                connection._reader._buffer += b"x"
            else:
                connection._requests[0][2].set_result("all of it")
                await asyncio.wait({waiting})
            return waiting.done()

        monkeypatch.setattr(thread, "_came", came)
        made = await client(connection)._get_conn(1)
        assert await made.send(FetchRequest()) == "all of it"
        return connection

    assert not asyncio.run(ask()).closed


def test_what_a_group_holds_back_until_its_members_have_come_is_waited_for():
    async def ask():
        connection = Connection()
        made = await client(connection)._get_conn(1)
        return made.send(JoinGroupRequest()) is connection._requests[0][2]

    assert asyncio.run(ask())


def test_a_broker_that_takes_connections_and_says_nothing_is_passed_over():
    async def ask():
        made = client(asyncio.Event().wait)
        return await made._get_conn(1), made.forced

    assert asyncio.run(ask()) == (None, [1])


def test_a_connection_is_bounded_once():
    async def ask():
        made = client(Connection())
        return (await made._get_conn(1)).send is (await made._get_conn(1)).send

    assert asyncio.run(ask())
