"""A process's HTTP port: metrics for Prometheus, and two questions of an orchestrator.

GET /metrics   every metric of the process, in Prometheus' text format
GET /healthz   200 while its main loop turns; else 503 with the reason: it hangs, start it again
GET /readyz    200 while it serves; else 503 with the reason: it starts, or part of its input is stopped
"""

from __future__ import annotations

import threading
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from lineage.errors import UsageError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from prometheus_client.registry import Collector

LOOPBACK: Final = "127.0.0.1"
LOOP_SECONDS: Final = 10.0  # within which a main loop turns
_EVERYWHERE: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - to be recognised, not to be bound


class Address(NamedTuple):
    """Where to listen. Port 0: on any that is free."""

    host: str = LOOPBACK
    port: int = 0

    @property
    def local(self) -> str:
        return LOOPBACK if self.host in _EVERYWHERE else self.host


class MetricsServer:
    """Serves until it is closed, in threads of its own. `healthy` and `ready` give what is wrong, or nothing."""

    def __init__(
        self,
        metrics: Collector,
        address: Address,
        *,
        healthy: Callable[[], str] = str,
        ready: Callable[[], str] = str,
    ) -> None:
        """Listen. Raises UsageError where the port cannot be had."""
        registry = CollectorRegistry()
        registry.register(metrics)
        page: Callable[..., Iterable[bytes]] = make_wsgi_app(registry)

        def answer(environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            asked = {"/healthz": healthy, "/readyz": ready}.get(environment["PATH_INFO"])
            if asked is None:
                return page(environment, start)
            wrong = asked()
            start("503 Service Unavailable" if wrong else "200 OK", [("Content-Type", "text/plain; charset=utf-8")])
            return [f"{wrong or 'ok'}\n".encode()]

        try:
            self._server = make_server(*address, answer, _Server, _Handler)
        except OSError as error:
            raise UsageError(
                f"cannot listen on {address.host}:{address.port} for metrics: {error.strerror}; choose others with "
                "--metrics-host and --metrics-port"
            ) from error
        self.address = Address(address.host, self._server.server_port)
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(1.0)


def turns(loop: asyncio.AbstractEventLoop) -> Callable[[], str]:
    """Ask whether an event loop turns, from another thread."""

    def ask() -> str:
        turned = threading.Event()
        loop.call_soon_threadsafe(turned.set)
        return "" if turned.wait(LOOP_SECONDS) else f"the event loop has not turned for {LOOP_SECONDS:.0f} s"

    return ask


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Handler(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing: a scrape a second is no news."""
