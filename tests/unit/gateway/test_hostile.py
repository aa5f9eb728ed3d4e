"""Requests that mean ill: what is wrong is answered, little is logged, and connections that stall give way."""

import asyncio
import gzip
import logging
import resource
from types import SimpleNamespace

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestClient, TestServer

from spillway.agents.gateway.connections import Connections, allow_files, quiet_logger
from spillway.agents.gateway.plain import _query
from spillway.agents.gateway.receiving import READ, Room, body_of, require_media
from spillway.agents.gateway.security import Gatekeeper
from spillway.agents.gateway.server import HttpFront
from spillway.agents.gateway.statuses import RefusedError
from spillway.lineage import reasons
from spillway.lineage.errors import WireError
from spillway.lineage.limits import DEFAULT_LIMITS


class Pipelines:
    """One pipeline that answers nothing but its name."""

    ready, served = True, {}

    def find(self, name, _version, _allowed):
        return SimpleNamespace(name=name, limits=DEFAULT_LIMITS)


async def ask(body, headers, largest=1 << 20):
    """The reason with which a body is refused, "" if it is read; and what the room still counts."""
    room, refused = Room(), []

    async def read(request):
        try:
            async with body_of(request, room, largest):
                refused.append("")
        except WireError as error:
            refused.append(error.reason)
        return web.Response()

    app = web.Application()
    app.router.add_post("/", read)
    async with TestClient(TestServer(app)) as client, client.post("/", data=body, headers=headers):
        return refused[0], room.taken


@pytest.mark.parametrize(
    ("body", "encoding", "reason"),
    [
        (gzip.compress(b"{}"), "gzip", ""),
        (b"\x1f\x8b" + b"no gzip" * 9, "gzip", reasons.BAD_INPUT),
        (b"\x78 no deflate", "deflate", reasons.BAD_INPUT),
        (gzip.compress(bytes(8 << 20)), "gzip", reasons.TOO_LARGE),
    ],
    ids=["packed", "no-gzip", "no-deflate", "bomb"],
)
def test_a_packed_body_is_read_or_refused(body, encoding, reason):
    assert asyncio.run(ask(body, {"Content-Encoding": encoding})) == (reason, 0)


async def front(work):
    served = HttpFront(Pipelines(), Gatekeeper(None, "127.0.0.1"), None, Room())
    port = await served.start("127.0.0.1", 0, None, 1)
    try:
        return await work(served, port)
    finally:
        await served.stop()


async def say(port, text):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text)
    try:
        return await asyncio.wait_for(reader.read(1 << 16), 20)
    finally:
        writer.close()


def test_what_is_no_http_leaves_no_traceback_in_the_log(caplog):
    caplog.set_level(logging.INFO)
    texts = [b"\x16\x03\x01 nothing\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"a" * 9_000 + b"\r\n\r\n"]

    async def work(_front, port):
        return [await say(port, text) for text in texts]

    for answer in asyncio.run(front(work)):
        assert b" 400 " in answer.splitlines()[0]
    assert not caplog.records


def test_a_method_that_a_path_lacks_is_told_those_that_it_has():
    asked = b"DELETE /v2/models/p/infer HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answer = asyncio.run(front(lambda _front, port: say(port, asked)))
    assert b" 405 " in answer.splitlines()[0]
    assert b"\r\nAllow: POST\r\n" in answer


@pytest.mark.parametrize("encodings", [["x-gzip"], ["gzip, identity"], ["gzip", "gzip"]])
def test_an_encoding_that_is_not_read_is_named(encodings):
    async def scenario():
        async def read(request):
            with pytest.raises(RefusedError, match=f"not {', '.join(encodings)!r}"):
                require_media(request, "application/json")
            return web.Response()

        app = web.Application()
        app.router.add_post("/", read)
        headers = [("Content-Type", "application/json"), *(("Content-Encoding", each) for each in encodings)]
        async with TestClient(TestServer(app)) as client, client.post("/", data=b"{}", headers=headers) as answer:
            assert answer.status == 200

    asyncio.run(scenario())


def test_an_id_too_long_for_the_log_is_refused_in_plain_json():
    with pytest.raises(WireError, match="id: must be a text of at most 256 characters"):
        _query(None, Pipelines().find("p", "", None), {"inputs": {}, "id": "a" * 257})


def test_our_own_errors_are_still_logged(caplog):
    quiet_logger().error("failed", exc_info=KeyError("ours"))
    assert "ours" in caplog.text


def test_connections_that_say_nothing_give_way():
    async def work(served, port):
        served._connections._most = 5
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        async with ClientSession() as session:
            for _ in range(10):
                async with session.get(f"http://127.0.0.1:{port}/v2/health/live") as answer:
                    assert answer.status == 200
        closed = [asyncio.ensure_future(reader.read()) for reader, _ in silent]
        done, _ = await asyncio.wait(closed, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        for each in closed:
            each.cancel()
        for _, writer in silent:
            writer.close()
        return len(done)

    assert asyncio.run(front(work)) > 0


class Connection:
    closed = False

    def force_close(self):
        self.closed = True


class Request(dict):
    transport = "open"

    def __init__(self):
        super().__init__()
        self.protocol = Connection()


def test_who_gives_way_first():
    connections = Connections(3)
    silent, waiting, answered, latest, read = (Request() for _ in range(5))
    everyone = [each.protocol for each in (silent, latest, answered, waiting, read)]
    for each in (answered, latest):
        with connections.answering(each):
            pass
    with connections.answering(read), connections.answering(waiting):
        read[READ] = True
        connections.shed(everyone)
        assert [each.closed for each in everyone] == [True, False, False, True, False]
        connections.shed([read.protocol, latest.protocol, answered.protocol, Connection(), Connection()])
        assert not latest.protocol.closed
        with (
            connections.answering(Request()),
            pytest.raises(RefusedError),
            connections.answering(Request()),
        ):
            pass


@pytest.mark.parametrize(
    ("limits", "raised"),
    [
        ((1024, 65536), [(4000, 65536)]),
        ((1024, 2048), [(2048, 2048)]),
        ((1024, resource.RLIM_INFINITY), [(4000, resource.RLIM_INFINITY)]),
        ((20000, 20000), []),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), []),
    ],
)
def test_files_for_all_connections_may_be_open(limits, raised, monkeypatch):
    told = []
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _kind, limits: told.append(limits))
    allow_files()
    assert told == raised
