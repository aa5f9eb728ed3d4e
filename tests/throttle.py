"""A TCP proxy on loopback that makes connections slow, late or dead, for tests of what a network does.

Each connection through it is a `Link` with two directions, `up` (to the server) and `down`, and each of them has:

* `rate`: bytes per second; None: as fast as it goes;
* `delay`: seconds by which everything comes later;
* `held`: while true, nothing passes at all; what was sent meanwhile passes afterwards.

`Throttle.shape` changes the links that a condition is true of, those to come included, and `cut` ends them. A link can
be told by its process (`Link.pid`), by what it says first (`Link.client`: the client id in its first request, as
Kafka's clients give), and by each of its requests: `watch` is shown them before they pass.

Kafka's clients go where the broker has told them to, so the broker has to advertise the proxy's port:
`tests.slow_broker` has one that does, on a listener beside its own.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

import psutil

from spillway.agents.broker.settings import HOST
from tests.link_traffic import Flow, Requests, client_id

if TYPE_CHECKING:
    from collections.abc import Callable

_READ = 1 << 16
_AHEAD = 1 << 20  # bytes read ahead of what has passed, so that a sender feels a slow link soon


class Link:
    def __init__(self, client: socket.socket, server: socket.socket, name: int) -> None:
        self.name = name
        self.up, self.down = Flow(), Flow()
        self.changed = threading.Condition()
        self.bytes = {"up": 0, "down": 0}
        self.client = ""  # the client id, once the first request was seen
        self.closed = False
        self.requests = Requests()
        self._client, self._server = client, server
        self._peer = client.getpeername()[1]
        self._pid: int | None = None

    @property
    def pid(self) -> int:
        """The process at the other end; 0 where it has gone."""
        if self._pid is None:
            found = [c.pid for c in psutil.net_connections("tcp4") if c.laddr and c.laddr.port == self._peer and c.pid]
            self._pid = found[0] if found else 0
        return self._pid

    def hold(self, direction: str = "up") -> None:
        """Let nothing more pass in a direction, until `Throttle.shape` says otherwise."""
        with self.changed:
            (self.up if direction == "up" else self.down).held = True

    def start(self, seen: Callable[[Link, bytes], None]) -> None:
        """Pass on, in both directions, until one end is through."""
        for source, target, direction in ((self._client, self._server, "up"), (self._server, self._client, "down")):
            threading.Thread(target=self._pump, args=(source, target, direction, seen), daemon=True).start()

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.changed.notify_all()
        for end in (self._client, self._server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _pump(
        self, source: socket.socket, target: socket.socket, direction: str, seen: Callable[[Link, bytes], None]
    ) -> None:
        waiting: deque[tuple[float, bytes]] = deque()
        writer = threading.Thread(target=self._write, args=(target, direction, waiting), daemon=True)
        writer.start()
        with contextlib.suppress(OSError):
            while data := source.recv(_READ):
                if direction == "up":
                    seen(self, data)
                with self.changed:
                    waiting.append((time.monotonic(), data))
                    self.changed.notify_all()
                    self.changed.wait_for(lambda: self.closed or sum(len(d) for _, d in waiting) < _AHEAD)
        with self.changed:
            waiting.append((time.monotonic(), b""))
            self.changed.notify_all()
        writer.join()
        self.close()

    def _write(self, target: socket.socket, direction: str, waiting: deque[tuple[float, bytes]]) -> None:
        flow = self.up if direction == "up" else self.down
        with contextlib.suppress(OSError):
            while data := self._next(flow, waiting):
                target.sendall(data)
                self.bytes[direction] += len(data)

    def _next(self, flow: Flow, waiting: deque[tuple[float, bytes]]) -> bytes:
        """Wait for what may pass; nothing once the link is closed."""
        with self.changed:
            while not self.closed:
                pause = None
                if waiting and not flow.held:
                    read_at, data = waiting[0]
                    now = time.monotonic()
                    pause = flow.due(read_at, len(data)) - now
                    if pause <= 0:
                        waiting.popleft()
                        flow.passed(read_at, len(data))
                        self.changed.notify_all()
                        return data
                self.changed.wait(pause)
        return b""


class Throttle:
    """Listens on a port of loopback and passes everything on to another."""

    def __init__(self, target: int, port: int = 0) -> None:
        """`target`: the server's port; `port`: ours, 0 for any."""
        self.target = target
        self._listener = socket.create_server((HOST, port))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._links: list[Link] = []
        self._shapes: list[tuple[Callable[[Link], bool], dict[str, object]]] = []
        self._watchers: list[Callable[[Link, int, bytes], object]] = []
        self._made = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def links(self) -> list[Link]:
        with self._lock:
            self._links = [link for link in self._links if not link.closed]
            return list(self._links)

    def shape(
        self,
        which: Callable[[Link], bool] = lambda _link: True,
        *,
        rate: float | None = None,
        delay: float = 0.0,
        held: bool = False,
        direction: str = "both",
    ) -> None:
        """Make the links that `which` is true of so, also those to come; the last word on a link counts."""
        settings = {"rate": rate, "delay": delay, "held": held}
        with self._lock:
            self._shapes.append((which, {"direction": direction, **settings}))
        for link in self.links:
            if which(link):
                _apply(link, direction, settings)

    def reset(self) -> None:
        """Let everything pass again, and forget who watches."""
        with self._lock:
            self._shapes.clear()
        self._watchers.clear()
        self.shape()

    def watch(self, watcher: Callable[[Link, int, bytes], object]) -> None:
        """Show every request to `watcher(link, api key, its first bytes)`, before it passes; it may hold the link."""
        self._watchers.append(watcher)

    def cut(self, which: Callable[[Link], bool] = lambda _link: True) -> int:
        """End the links that `which` is true of; how many."""
        cut = [link for link in self.links if which(link)]
        for link in cut:
            link.close()
        return len(cut)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # it was closed
                return
            try:
                link = self._linked(client)
            except OSError:  # the server is not there, or the client has gone: it is told as it would be without us
                client.close()
                continue
            with self._lock:
                self._links.append(link)
            link.start(self._seen)

    def _linked(self, client: socket.socket) -> Link:
        server = socket.create_connection((HOST, self.target), 5)
        try:
            server.settimeout(None)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = Link(client, server, self._made + 1)
        except OSError:
            server.close()
            raise
        self._made += 1
        return link

    def _seen(self, link: Link, data: bytes) -> None:
        """A link says something: before its first bytes pass it gets its shape, and watchers see every request."""
        if not link.bytes["up"] and not link.client:
            link.client = client_id(data)
            with self._lock:
                shapes = list(self._shapes)
            for which, settings in shapes:
                if which(link):
                    rest = {name: value for name, value in settings.items() if name != "direction"}
                    _apply(link, str(settings["direction"]), rest)
        if self._watchers:
            for api, head in link.requests.feed(data):
                for watcher in self._watchers:
                    watcher(link, api, head)


def _apply(link: Link, direction: str, settings: dict[str, object]) -> None:
    with link.changed:
        for flow, name in ((link.up, "up"), (link.down, "down")):
            if direction in (name, "both"):
                for key, value in settings.items():
                    setattr(flow, key, value)
        link.changed.notify_all()
