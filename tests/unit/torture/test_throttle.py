"""The proxy passes everything on, as late and as slowly as it is told, and no faster."""

import os
import socket
import struct
import threading
import time

import pytest

from agents.broker.settings import HOST
from tests.link_traffic import Flow, Requests, client_id
from tests.throttle import Throttle


def moments(flow, reads):
    """When each of (read at, size) passes, in order."""
    passed = []
    for at, size in reads:
        due = flow.due(at, at, size)
        flow.passed(due, at, size)
        passed.append(due)
    return passed


def test_a_free_flow_keeps_nothing_back():
    assert moments(Flow(), [(0, 100), (1, 10**9)]) == [0, 1]


def test_a_rate_is_kept_and_not_saved_up():
    assert moments(Flow(rate=100), [(0, 50), (0, 50), (10, 100)]) == [0.5, 1, 11]


def test_a_delay_is_no_rate():
    assert moments(Flow(delay=2), [(0, 100), (0, 100), (1, 1)]) == [2, 2, 3]


def test_a_rate_and_a_delay_together():
    assert moments(Flow(rate=100, delay=2), [(0, 100), (0, 300), (9, 100)]) == [2, 4, 11]


def test_who_a_client_is_stands_in_its_first_request():
    request = struct.pack(">ihhih", 20, 18, 3, 1, 4) + b"mine" + b"rest"
    assert client_id(request) == "mine"
    assert client_id(struct.pack(">ihhih", 20, 18, 3, 1, -1)) == ""
    assert client_id(b"GET / HTTP/1.1") == ""


@pytest.mark.parametrize("step", [1, 3, 7, 1_000, 10_000])
def test_requests_are_told_apart_however_they_come(step):
    bodies = [(0, b"a" * 2_000), (18, b""), (3, b"b" * 10)]
    data = b"".join(struct.pack(">ih", 2 + len(body), api) + body for api, body in bodies)
    requests = Requests()
    found = [each for at in range(0, len(data), step) for each in requests.feed(data[at : at + step])]
    assert [api for api, _ in found] == [0, 18, 3]
    assert [head[6:] for _, head in found] == [b"a" * 1_018, b"", b"b" * 10]


@pytest.fixture
def server():
    """Echoes on every connection, until it ends."""
    listener = socket.create_server((HOST, 0))

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=echo, args=(connection,), daemon=True).start()

    def echo(connection):
        with connection:
            while data := connection.recv(1 << 16):
                connection.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def connect(proxy):
    connection = socket.create_connection((HOST, proxy.port), 10)
    connection.sendall(b"hello")
    return connection


def receive(connection, size):
    data = b""
    while len(data) < size:
        more = connection.recv(1 << 16)
        assert more, data
        data += more
    return data


def test_everything_passes_both_ways(server):
    with Throttle(server) as proxy, connect(proxy) as connection:
        assert receive(connection, 5) == b"hello"
        data = bytes(range(256)) * 8_000
        threading.Thread(target=connection.sendall, args=(data,), daemon=True).start()
        assert receive(connection, len(data)) == data
        assert proxy.links[0].bytes["up"] == 5 + len(data)


def test_what_is_held_passes_when_it_is_let_go(server):
    with Throttle(server) as proxy, connect(proxy) as connection:
        receive(connection, 5)
        proxy.shape(held=True)
        connection.sendall(b"later")
        connection.settimeout(0.05)
        with pytest.raises(TimeoutError):
            connection.recv(5)
        connection.settimeout(10)
        proxy.shape(held=False)
        assert receive(connection, 5) == b"later"


def test_a_shape_is_of_the_links_that_it_is_meant_for_and_of_those_to_come(server):
    with Throttle(server) as proxy, connect(proxy) as one:
        receive(one, 5)
        first = proxy.links[0].name
        proxy.shape(lambda link: link.name != first, held=True)
        with connect(proxy) as other:
            one.sendall(b"again")
            assert receive(one, 5) == b"again"
            other.settimeout(0.05)
            with pytest.raises(TimeoutError):
                other.recv(5)
            other.settimeout(10)
            proxy.shape()
            assert receive(other, 5) == b"hello"


def test_a_watcher_may_hold_a_link_at_a_request(server):
    with Throttle(server) as proxy:
        proxy.watch(lambda link, api, head: link.hold() if api == 7 and b"state" in head else None)
        with socket.create_connection((HOST, proxy.port), 10) as connection:
            request = struct.pack(">ih", 6, 1) + b"data"
            connection.sendall(request)
            assert receive(connection, len(request)) == request
            connection.sendall(struct.pack(">ih", 7, 7) + b"state")
            connection.settimeout(0.05)
            with pytest.raises(TimeoutError):
                connection.recv(5)
            connection.settimeout(10)
            proxy.shape()
            assert receive(connection, 11)[6:] == b"state"


def test_a_link_is_slow_where_it_is_told_to_be(server):
    """200 KB at 1 MB/s cannot take less than .2 s, on whatever machine."""
    with Throttle(server) as proxy, connect(proxy) as connection:
        receive(connection, 5)
        proxy.shape(rate=1e6, direction="up")
        began = time.monotonic()
        threading.Thread(target=connection.sendall, args=(bytes(200_000),), daemon=True).start()
        receive(connection, 200_000)
        assert time.monotonic() - began >= 0.19


def test_a_cut_ends_both_sides_and_leaves_the_others(server):
    with Throttle(server) as proxy, connect(proxy) as one, connect(proxy) as other:
        receive(one, 5)
        receive(other, 5)
        first = min(link.name for link in proxy.links)
        assert proxy.cut(lambda link: link.name == first) == 1
        assert one.recv(5) == b""
        other.sendall(b"still")
        assert receive(other, 5) == b"still"
        assert [link.name for link in proxy.links] == [first + 1]


def test_a_client_that_has_gone_before_it_was_taken_on_costs_nobody_else_the_way(server, monkeypatch):
    gone, create = threading.Event(), socket.create_connection

    def late(*where):
        assert gone.wait(600)
        return create(*where)

    with Throttle(server) as proxy:
        hasty = create((HOST, proxy.port), 10)
        monkeypatch.setattr("tests.throttle.socket.create_connection", late)
        hasty.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        hasty.close()  # with a reset: whom the proxy has then has no name any more
        gone.set()
        with create((HOST, proxy.port), 10) as connection:
            connection.sendall(b"hello")
            assert receive(connection, 5) == b"hello"


def test_a_link_knows_its_process(server):
    with Throttle(server) as proxy, connect(proxy) as connection:
        receive(connection, 5)
        assert proxy.links[0].pid == os.getpid()


def test_a_server_that_is_not_there_is_told_to_the_client():
    with socket.create_server((HOST, 0)) as nobody:
        port = nobody.getsockname()[1]
    with Throttle(port) as proxy, socket.create_connection((HOST, proxy.port), 10) as connection:
        assert connection.recv(5) == b""
