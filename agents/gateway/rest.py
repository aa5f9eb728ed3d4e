"""The Open Inference Protocol (v2) by HTTP: health, metadata, and inference as JSON or with binary tensors.

A pipeline is a model, and one request is one query. What the protocol has besides (statistics, model configuration,
repository, shared memory) is answered 404 with a text that says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from spillway.agents.gateway import statuses
from spillway.agents.gateway.asking import Asked, Pipelines, Served
from spillway.agents.gateway.bodies import JSON_LENGTH, InferRequest, bad, read_request, selected, write_response
from spillway.agents.gateway.parameters import answer_parameters, ask_of
from spillway.agents.gateway.receiving import Room, body_of, require_media
from spillway.agents.gateway.signature import SERVER
from spillway.lineage.message import PREDICTION

if TYPE_CHECKING:
    from spillway.agents.gateway.asking import Answered
    from spillway.agents.gateway.security import Caller

PROTOCOL: Final = "rest"
CALLER: Final = web.RequestKey("caller", object)
_JSON: Final = "application/json"
_BINARY: Final = "application/octet-stream"
_UNSUPPORTED: Final = (
    "/v2/repository/{rest:.*}",
    "/v2/systemsharedmemory/{rest:.*}",
    "/v2/cudasharedmemory/{rest:.*}",
    "/v2/models/stats",
    "/v2/models/{name}/config",
    "/v2/models/{name}/stats",
    "/v2/models/{name}/versions/{version}/config",
    "/v2/models/{name}/versions/{version}/stats",
)


def caller_of(request: web.Request) -> Caller:
    caller: Any = request[CALLER]
    return caller  # type: ignore[no-any-return]


class Rest:
    """The handlers of one gateway."""

    def __init__(self, pipelines: Pipelines, room: Room) -> None:
        self._pipelines, self._room = pipelines, room

    def add(self, app: web.Application) -> None:
        router = app.router
        router.add_get("/v2", self._server)
        router.add_get("/v2/health/live", self._live)
        router.add_get("/v2/health/ready", self._ready)
        for prefix in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
            router.add_post(f"{prefix}/infer", self._infer)  # before the others, as routes are tried in turn
            router.add_get(prefix, self._metadata)
            router.add_get(f"{prefix}/ready", self._model_ready)
        for path in _UNSUPPORTED:
            router.add_route("*", path, _unsupported)

    async def _server(self, _request: web.Request) -> web.Response:
        return web.json_response(SERVER)

    async def _live(self, _request: web.Request) -> web.Response:
        return web.json_response({"live": True})

    async def _ready(self, _request: web.Request) -> web.Response:
        ready = self._pipelines.ready
        return web.json_response({"ready": ready}, status=200 if ready else 503)

    def _served(self, request: web.Request) -> Served:
        found = request.match_info
        return self._pipelines.find(found["name"], found.get("version", ""), caller_of(request).pipelines)

    async def _model_ready(self, request: web.Request) -> web.Response:
        name, ready = self._served(request).name, self._pipelines.ready
        return web.json_response({"name": name, "ready": ready}, status=200 if ready else 503)

    async def _metadata(self, request: web.Request) -> web.Response:
        served = self._served(request)
        return web.json_response(served.signature.metadata(served.version))

    async def _infer(self, request: web.Request) -> web.Response:
        served = self._served(request)
        require_media(request, _JSON, _BINARY)
        async with body_of(request, self._room, served.limits.max_message_bytes) as body:
            told = read_request(body, _json_length(request), served.signature, served.limits)
            ask = ask_of(told.parameters, served.limits, needs=served.signature.needs)
            asked = Asked.of(request.headers, caller_of(request), told.inputs, ask, told.id)
            answered = await served.ask(asked, PROTOCOL)
            note_gone(request, served, PROTOCOL)
            return self._answer(served, told, answered)

    def _answer(self, served: Served, told: InferRequest, answered: Answered) -> web.Response:
        outcome = answered.outcome
        if outcome is None or outcome.kind != PREDICTION:
            return refusal(answered, outcome.reason if outcome is not None else "")
        error = answered.error
        if not error:
            selected(outcome.outputs, told.outputs)  # before a status is chosen
        parameters = answer_parameters(outcome, answered.request_id)
        body, length = write_response(served.name, served.version, told, outcome.outputs, parameters, error)
        binary = length is not None
        return web.Response(
            body=body,
            status=answered.status.http,
            content_type=_BINARY if binary else _JSON,
            headers=identified(answered, {JSON_LENGTH: str(length)} if binary else {}),
        )


def refusal(answered: Answered, reason: str = "") -> web.Response:
    """Return an answer without a prediction: `error`, and the reason's code where there is one."""
    told = {"error": answered.error, **({"reason": reason} if reason else {})}
    if answered.request_id:
        told["request_id"] = answered.request_id
    return web.json_response(told, status=answered.status.http, headers=identified(answered))


def identified(answered: Answered, others: dict[str, str] | None = None) -> dict[str, str]:
    own = {"x-request-id": answered.request_id} if answered.request_id else {}
    return {**(others or {}), **own, **statuses.retry_after(answered.status)}


def note_gone(request: web.Request, served: Served, protocol: str) -> None:
    """Count an outcome whose client went away before it came."""
    if request.transport is None or request.transport.is_closing():
        served.of(protocol).passed_over += 1


def _json_length(request: web.Request) -> int | None:
    text = request.headers.get(JSON_LENGTH)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 12):  # noqa: PLR2004
        raise bad(f"{JSON_LENGTH}: must be the number of bytes of the JSON, not {text!r:.40}")
    return int(text)


async def _unsupported(request: web.Request) -> web.Response:
    told = {"error": f"Spillway has no {request.path}: statistics, config, repository and shared memory are left out"}
    return web.json_response(told, status=statuses.UNSUPPORTED.http)
