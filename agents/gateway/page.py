"""The page at `/` that shows what a gateway's pipelines do, and the JSON behind it.

The page and its two files hold nothing of a pipeline, and are open: the page asks for a token itself. What it shows
comes from `/v1/status`, which tells a caller of its own pipelines and their learners alone. The processes are read once
a second however many look on, and not at all while nobody does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import time
from collections import deque
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from spillway.agents.gateway.rest import caller_of
from spillway.agents.gateway.statuses import NOT_FOUND, TOO_MANY, RefusedError
from spillway.agents.live.operator.inspection import describe
from spillway.agents.live.operator.sightings import search
from spillway.lineage.errors import UsageError
from spillway.lineage.ids import MAX_REQUEST_ID, is_request_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from spillway.producers.connection import ClientSettings
    from spillway.topology.load import Pipeline
    from spillway.topology.spec import PipelineSpec

PERIOD: Final = 1.0  # seconds between two readings of the processes
VIEWERS: Final = 32
_SEARCHES: Final = 4  # at a time: each reads a minute of records
_LATEST: Final = 1e11  # unix seconds
_POINTS: Final = 300  # of a pipeline's history: five minutes
_PATIENCE: Final = 10.0  # seconds for a viewer to read an event
_FILES: Final = {
    "/": ("page.html", "text/html"),
    "/page/page.css": ("page.css", "text/css"),
    "/page/page.js": ("page.js", "text/javascript"),
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def _static(name: str, kind: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    text = resources.files("spillway.agents.gateway").joinpath(name).read_text(encoding="utf-8")

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(
            text=text, content_type=kind, charset="utf-8", headers={**_HEADERS, "Cache-Control": "no-cache"}
        )

    return answer


class Page:
    """The page of a gateway's pipelines. `gather` (`View.gather` of agents/supervise) runs in a thread, alone."""

    def __init__(
        self, gather: Callable[[], dict[str, Any]], pipelines: Iterable[Pipeline], settings: ClientSettings
    ) -> None:
        self._gather, self._settings = gather, settings
        self._served: dict[str, PipelineSpec] = {}  # the learners after their pipeline
        self._learns_for: dict[str, str] = {}
        for pipeline in pipelines:
            self._served[pipeline.spec.name] = pipeline.spec
            for learner in pipeline.learners:
                self._served[learner.spec.name] = learner.spec
                self._learns_for[learner.spec.name] = pipeline.spec.name
        self._history: dict[str, deque[dict[str, Any]]] = {name: deque(maxlen=_POINTS) for name in self._served}
        self._newest: dict[str, Any] = {}
        self._read_at = -PERIOD  # monotonic
        self._at = 0.0  # unix seconds
        self._reading = asyncio.Lock()
        self._ended = asyncio.Event()
        self._viewers = 0
        self._searches = 0

    def add(self, app: web.Application) -> None:
        """Add the page to an application that puts each request's caller where `caller_of` looks."""
        for path, (name, kind) in _FILES.items():
            app.router.add_get(path, _static(name, kind))
        app.router.add_get("/v1/status", self.status)
        app.router.add_get("/v1/status/stream", self.stream)
        app.router.add_get("/v1/pipelines/{name}/queries/{id}", self.query)
        app.on_shutdown.append(self.end)

    async def status(self, request: web.Request) -> web.Response:
        """Answer once, with the last minutes."""
        return _json(await self._told(self._seen_by(request), 0.0))

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Answer with a server-sent event a second: the first has the last minutes, the others what came since."""
        if self._viewers >= VIEWERS:
            raise RefusedError(TOO_MANY, f"{VIEWERS} others look at this page; close one of them")
        headers = {**_HEADERS, "Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        response = web.StreamResponse(headers=headers)
        self._viewers += 1
        try:
            await response.prepare(request)
            since = 0.0
            while not self._ended.is_set():
                told = await self._told(self._seen_by(request), since)
                since = told["at"]
                await asyncio.wait_for(response.write(f"data: {json.dumps(told)}\n\n".encode()), _PATIENCE)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._ended.wait(), PERIOD)
        except TimeoutError:  # it does not read: end it without waiting for what is under way
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._viewers -= 1
        return response

    async def query(self, request: web.Request) -> web.Response:
        """Answer what became of a query. `at`: unix seconds from which to search; `key`: the query's.

        Raises RefusedError, UsageError, BrokerError.
        """
        name, request_id = request.match_info["name"], request.match_info["id"]
        if name not in self._seen_by(request):
            raise RefusedError(NOT_FOUND, f"there is no pipeline {name!r:.80} here")
        if not is_request_id(request_id):
            raise UsageError(f"a request id has 1 to {MAX_REQUEST_ID} visible ASCII characters: {request_id!r:.200}")
        at, key = request.query.get("at"), request.query.get("key")
        try:
            since = None if at is None else min(max(float(at), 0.0), _LATEST)
        except ValueError:
            since = math.nan
        if since is not None and math.isnan(since):
            raise UsageError(f"at={at!r:.80} is no time: write it in unix seconds")
        if self._searches >= _SEARCHES:
            raise RefusedError(TOO_MANY, f"{_SEARCHES} queries are searched for; try again later")
        spec = self._served[name]
        self._searches += 1
        try:
            found = await asyncio.to_thread(search, self._settings, spec, request_id, at=since, key=key)
        finally:
            self._searches -= 1
        return _json(describe(found, spec))

    async def end(self, _app: web.Application) -> None:
        """End the streams."""
        self._ended.set()

    def _seen_by(self, request: web.Request) -> list[str]:
        allowed = caller_of(request).pipelines
        return [name for name in self._served if allowed is None or self._learns_for.get(name, name) in allowed]

    async def _told(self, names: Iterable[str], since: float) -> dict[str, Any]:
        """What is known of these, no older than `PERIOD`, and their history after `since`."""
        async with self._reading:
            if time.monotonic() - self._read_at >= PERIOD * 0.9:
                self._newest = (await asyncio.to_thread(self._gather))["pipelines"]
                self._read_at, self._at = time.monotonic(), time.time()
                for name, history in self._history.items():
                    known = self._newest.get(name, {})
                    point = {what: known.get(what) for what in ("goodput", "latency", "latency_p99")}
                    history.append({"at": self._at, **point})
        return {"at": self._at, "pipelines": {name: self._of(name, since) for name in names}}

    def _of(self, name: str, since: float) -> dict[str, Any]:
        spec = self._served[name]
        return {
            **self._newest.get(name, {}),
            "slo": spec.slo,
            "graph": {stage.name: stage.after for stage in spec.stages},
            "learns_for": self._learns_for.get(name),
            "history": [point for point in self._history[name] if point["at"] > since],
        }


def _json(told: dict[str, Any]) -> web.Response:
    return web.json_response(told, headers={**_HEADERS, "Cache-Control": "no-store"})
