"""A front's door to workers of other hosts: raw TLS clients, no broker and no model."""

import contextlib
import logging
import re
import shutil
import socket
import ssl
import subprocess
from pathlib import Path

import pytest
import trustme

from spillway.agents.broker.ports import free_port
from spillway.agents.broker.settings import HOST
from spillway.agents.workers import frames
from spillway.agents.workers.links import Links
from spillway.agents.workers.tls import context_of
from spillway.lineage.errors import UsageError
from tests import waiting
from tests.certificates import folder_of
from tests.integration.workers.conftest import SECONDS, query


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    authority = trustme.CA()
    folder = tmp_path_factory.mktemp("certs")
    mixed = folder_of(trustme.CA(), folder / "mixed")
    authority.cert_pem.write_to_path(str(mixed / "ca.pem"))
    return {
        "front": folder_of(authority, folder / "front"),
        "worker": folder_of(authority, folder / "worker"),
        "mixed": mixed,
    }


@contextlib.contextmanager
def listening_with(heard, folder):
    """Links that listen, and know where."""
    links = Links(heard, timeout=60.0)
    links.address = HOST, free_port()
    links.listen(links.address, context_of(folder, front=True), None)
    yield links
    links.close()


@pytest.fixture
def patient(monkeypatch):
    """A front that loses nobody for silence: those whom a test plays answer no pings, and a host may stall."""
    monkeypatch.setattr("spillway.agents.workers.links.SILENT_SECONDS", 10 * SECONDS)


@pytest.fixture
def hasty(monkeypatch):
    """A front that soon closes the connections of strangers and of those it has refused, for which a test waits."""
    monkeypatch.setattr("spillway.agents.workers.links._GOODBYE_SECONDS", 0.5)
    monkeypatch.setattr("spillway.agents.workers.door.HANDSHAKE_SECONDS", 2.0)


@pytest.fixture
def front(certs, heard):
    with listening_with(heard, certs["front"]) as links:
        yield links


class Far:
    """A worker of another host, played by the test; it answers no ping by itself."""

    def __init__(self, front, context):
        self.connection = context.wrap_socket(socket.create_connection(front.address, SECONDS))
        self.connection.settimeout(SECONDS)
        self._reader = frames.FrameReader()
        self._came = []

    def say(self, kind, **fields):
        self.connection.sendall(b"".join(frames.encode({"kind": kind, **fields})))

    def hello(self, model="h", **fields):
        self.say(frames.HELLO, **{"protocol": frames.PROTOCOL, "model": "m:M", "hash": model, **fields})

    def next(self, *kinds):
        """The next frame of one of these kinds; None at the end of the stream."""
        while True:
            while self._came:
                frame = self._came.pop(0)
                if frame["kind"] in kinds:
                    return frame
            try:
                count = self.connection.recv_into(self._reader.wanted())
            except ConnectionResetError:
                return None
            if not count:
                return None
            self._reader.received(count)
            self._came += self._reader.frames()


@pytest.fixture
def far(front, certs):
    return lambda name="worker": Far(front, context_of(certs[name], front=False))


def test_links_that_look_while_they_are_closed_end_in_good_order(certs, heard):
    with listening_with(heard, certs["front"]) as links:
        tell = links.call

        def late(what):  # the thread has looked by then, as it does while a door is open
            links._thread.join(SECONDS)
            tell(what)

        links.call = late
    assert not links._thread.is_alive()


def test_a_front_pings_first_and_a_worker_that_answers_stays(far, front, heard):
    one = far()
    assert one.next(frames.PING)
    one.hello(version="3")
    assert heard.next("ready")[1]["version"] == "3"
    for _ in range(5):  # longer than three pings
        assert one.next(frames.PING)
        one.say(frames.PONG)
    front.send(0, "job", [query(n=1)], singly=False)
    batch = one.next(frames.BATCH)
    one.say(frames.ANSWER, id=batch["id"], first=0, results=[{"outputs": {"n": 1}}], seconds=0.1)
    assert heard.next("answered")[1] == "job"


def test_a_worker_that_is_silent_for_three_pings_is_lost_and_its_connection_closed(far, front, heard):
    one = far()
    one.hello()
    heard.next("ready")
    front.send(0, "job", [query(n=1)], singly=False)
    batch = one.next(frames.BATCH)
    _, job, _, why, failed = heard.next("lost")
    assert (job, failed) == ("job", False)
    assert "three pings were missed" in why
    with contextlib.suppress(OSError):  # its answer comes too late for anybody
        one.say(frames.ANSWER, id=batch["id"], first=0, results=[{"outputs": {"n": 1}}], seconds=0.1)
    assert one.next(frames.BYE) is None
    again = far()
    again.hello()
    assert heard.next("ready")[0] == 1


@pytest.mark.usefixtures("patient")
def test_a_large_batch_and_its_answer_pass(far, front, heard):
    one = far()
    one.hello()
    heard.next("ready")
    front.send(0, "job", [query(x=b"x" * 9_000_000)], singly=False)
    batch = one.next(frames.BATCH)
    one.say(frames.ANSWER, id=batch["id"], first=0, results=[{"outputs": batch["queries"][0]["inputs"]}], seconds=0.1)
    assert heard.next("answered")[3] == [{"outputs": {"x": b"x" * 9_000_000}}]


@pytest.mark.usefixtures("patient", "hasty")
@pytest.mark.parametrize(
    ("fields", "words"),
    [({"model": "other"}, "must be the same"), ({"model": None}, "must be the same"), ({"protocol": 9}, "protocol 9")],
)
def test_a_worker_of_another_model_or_protocol_is_refused_and_closed(far, heard, fields, words):
    first = far()
    first.hello()
    heard.next("ready")
    other = far()
    other.hello(**fields)
    assert words in other.next(frames.REFUSED)["reason"]
    assert other.next(frames.BYE) is None
    assert heard.events.empty()


def connected(front, context=None, data=b""):
    connection = socket.create_connection(front.address, SECONDS)
    if context is not None:
        connection = context.wrap_socket(connection)
    connection.sendall(data)
    return connection


def without_certificate():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


NO_HELLO = b"".join(frames.encode({"kind": frames.DRAIN}))
STRANGERS = {
    "no-tls": lambda front, _certs: connected(front, data=b"GET / HTTP/1.1\r\n\r\n"),
    "nothing-said": lambda front, _certs: connected(front),
    "no-certificate": lambda front, _certs: connected(front, without_certificate()),
    "anothers-certificate": lambda front, certs: connected(front, context_of(certs["mixed"], front=False)),
    "garbage": lambda front, certs: connected(front, context_of(certs["worker"], front=False), b"\xff" * 64),
    "no-hello": lambda front, certs: connected(front, context_of(certs["worker"], front=False), NO_HELLO),
}


@pytest.mark.usefixtures("patient", "hasty")
@pytest.mark.parametrize("stranger", STRANGERS.values(), ids=STRANGERS)
def test_a_stranger_is_turned_away_and_nobody_hears_of_it(far, front, heard, certs, caplog, stranger):
    caplog.set_level(logging.WARNING)
    with stranger(front, certs) as connection:
        one = far()
        one.hello()
        heard.next("ready")  # whoever waits holds up nobody
        connection.settimeout(SECONDS)
        with contextlib.suppress(ConnectionError, ssl.SSLError):  # closed, with or without an alert
            while connection.recv(1 << 16):
                pass
    with stranger(front, certs):
        waiting.until(lambda: "connection was rejected" in caplog.text, SECONDS)
    assert caplog.text.count("connection was rejected") == 1
    assert heard.events.empty()


@pytest.mark.usefixtures("patient", "hasty")
def test_many_strangers_that_say_nothing_do_not_keep_a_worker_out(far, front, heard):
    strangers = [connected(front) for _ in range(100)]
    one = far()
    one.hello()
    heard.next("ready")
    for stranger in strangers:
        stranger.close()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")
def test_the_folder_that_the_documentation_makes_lets_a_worker_in(tmp_path, heard):
    text = (Path(__file__).parents[3] / "docs" / "workers.md").read_text()
    (commands,) = re.findall(r"```\n(mkdir certs\n.*?)```", text, re.DOTALL)
    subprocess.run(["sh", "-ec", commands], cwd=tmp_path, check=True, capture_output=True, timeout=SECONDS)
    certs = tmp_path / "certs"
    with listening_with(heard, certs) as links:
        one = Far(links, context_of(certs, front=False))
        one.hello()
        heard.next("ready")


def test_an_address_that_is_taken_is_told(front, certs):
    with pytest.raises(UsageError, match=r"cannot listen on 127.0.0.1.*'listen' under 'workers'"):
        front.listen(front.address, context_of(certs["front"], front=True), None)


def test_a_folder_without_certificates_is_told(tmp_path, certs):
    with pytest.raises(UsageError, match=r"there is no .*ca.pem"):
        context_of(tmp_path, front=True)
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / name).write_text("nothing")
    with pytest.raises(UsageError, match=r"cannot be used"):
        context_of(tmp_path, front=True)
