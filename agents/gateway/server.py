"""The gateway's HTTP server: who may come in, how many, and what an error looks like.

Every error is `{"error": text}` with its status, whatever raised it; what is no HTTP is aiohttp's to refuse. Without a
token health is open, and the page's own files, which hold nothing of a pipeline.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from spillway.agents.gateway import openapi, statuses
from spillway.agents.gateway.connections import Connections, quiet_logger
from spillway.agents.gateway.plain import Plain
from spillway.agents.gateway.rest import CALLER, Rest, caller_of
from spillway.agents.gateway.signature import SERVER
from spillway.lineage.errors import SpillwayError, UsageError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Iterable

    from prometheus_client.registry import Collector

    from spillway.agents.gateway.asking import Pipelines
    from spillway.agents.gateway.feedback import Signer
    from spillway.agents.gateway.receiving import Room
    from spillway.agents.gateway.security import Gatekeeper

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger(__name__)

_PAGE: Final = ("/", "/page/page.css", "/page/page.js")  # which asks for the token itself
_OPEN: Final = frozenset({"/v2/health/live", "/v2/health/ready", *_PAGE})
_KEEP_ALIVE: Final = 75.0


class HttpFront:
    """The server of one gateway."""

    def __init__(
        self,
        pipelines: Pipelines,
        gatekeeper: Gatekeeper,
        signer: Signer,
        room: Room,
        metrics: Iterable[Collector] = (),
    ) -> None:
        """`metrics`: of the pipelines, for `GET /metrics`, which tells a caller of all of them."""
        self._pipelines, self._gatekeeper = pipelines, gatekeeper
        self.app = web.Application(middlewares=[self._guarded])
        Rest(pipelines, room).add(self.app)
        Plain(pipelines, room, signer).add(self.app)
        self.app.router.add_get("/openapi.json", self._openapi)
        self.app.router.add_get("/metrics", self._metrics)
        self._registry = CollectorRegistry()
        for each in metrics:
            self._registry.register(each)
        self._runner: web.AppRunner | None = None
        self._connections = Connections()

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None, drain: float) -> int:
        """Listen, and return the port. `drain`: seconds for what is under way at the end. Raises UsageError."""
        runner = web.AppRunner(
            self.app,
            access_log=None,
            logger=quiet_logger(),
            keepalive_timeout=_KEEP_ALIVE,
            shutdown_timeout=drain,
            handler_cancellation=False,
        )
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port, ssl_context=tls).start()
        except OSError as error:
            raise UsageError(
                f"cannot listen on {host}:{port} for HTTP: {error.strerror or error}; choose another --http"
            ) from error
        self._runner = runner
        self._connections.watch(runner)
        chosen: int = runner.addresses[0][1]
        return chosen

    async def stop(self) -> None:
        """Take no new connections, and wait for what is under way."""
        self._connections.close()
        if self._runner is not None:
            await self._runner.cleanup()

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            with self._connections.answering(request):
                if request.path not in _OPEN:
                    authorization, host = (request.headers.get(name) for name in ("Authorization", "Host"))
                    request[CALLER] = self._gatekeeper.caller(authorization or "", host)
                return await handler(request)
        except SpillwayError as error:
            status = statuses.status_of(error)
            challenge = {"WWW-Authenticate": "Bearer"} if status is statuses.UNAUTHENTICATED else {}
            return _error(status.http, str(error), {**challenge, **statuses.retry_after(status)})
        except web.HTTPException as error:
            allowed = {name: text for name, text in error.headers.items() if name == "Allow"}
            return _error(error.status, f"{request.method} {request.path}: {error.reason}", allowed)
        except (ConnectionError, TimeoutError):
            raise  # the client is gone, or does not read
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            return _error(500, "the gateway failed at this request; its log says why")

    async def _metrics(self, request: web.Request) -> web.Response:
        if caller_of(request).pipelines is not None:
            raise statuses.RefusedError(statuses.NOT_FOUND, "metrics are of all pipelines, and this token is not")
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _openapi(self, request: web.Request) -> web.Response:
        allowed = caller_of(request).pipelines
        served = [each for name, each in self._pipelines.served.items() if allowed is None or name in allowed]
        return web.json_response(openapi.document([each.signature for each in served], SERVER["version"]))


def _error(status: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"error": text}, status=status, headers=headers)
