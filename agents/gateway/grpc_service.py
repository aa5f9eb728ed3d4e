"""The gateway's gRPC: the Open Inference Protocol (v2) with Triton's ModelStreamInfer, and `grpc.health.v1`.

One message is one query. An error is a status whose trailing metadata have its `reason` and `request-id`; in a stream
it is that query's `error_message` beside its id, and the stream goes on. A call's own deadline counts where it is
shorter than the query's. A client that goes away leaves its query running.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import grpc
from google.protobuf.message import DecodeError

from spillway.agents.gateway import grpc_messages, statuses
from spillway.agents.gateway.asking import Answered, Asked
from spillway.agents.gateway.bodies import bad, output_tensors
from spillway.agents.gateway.connections import CONNECTIONS
from spillway.agents.gateway.parameters import answer_parameters, ask_of
from spillway.agents.gateway.protocol import inference_pb2 as pb
from spillway.agents.gateway.receiving import Room
from spillway.agents.gateway.signature import SERVER
from spillway.agents.gateway.statuses import NOT_FOUND, RefusedError
from spillway.lineage import reasons
from spillway.lineage.errors import SpillwayError, UsageError
from spillway.lineage.limits import DEFAULT_LIMITS, Limits
from spillway.lineage.message import PREDICTION

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
    from pathlib import Path

    from spillway.agents.gateway.asking import Pipelines, Served
    from spillway.agents.gateway.bodies import InferRequest
    from spillway.agents.gateway.security import Caller
    from spillway.agents.gateway.statuses import Status

PROTOCOL: Final = "grpc"
SERVICE: Final = "inference.GRPCInferenceService"
HEALTH: Final = "grpc.health.v1.Health"
CALLS: Final = 2_000  # under way at a time, streams and watchers included
OPEN_CALLS: Final = 1_000  # of these, calls that need no token: they cannot take the place of queries
MESSAGE_SECONDS: Final = 30.0  # for a call's message to arrive
OF_A_STREAM: Final = 256  # queries under way
ENVELOPE: Final = 64 << 10  # bytes around the largest query: names, shapes, parameters
IDLE_SECONDS: Final = 300.0  # of a connection
WRITE_SECONDS: Final = 30.0  # until a client has to read an answer of its stream
WATCH_SECONDS: Final = 1.0
_MARGIN: Final = 0.05  # seconds of a call's deadline that are for the way back
_MARGIN_SHARE: Final = 0.1  # at most, of the whole
_LEAST: Final = 0.001  # seconds
_HEALTH_OF: Final = frozenset({"", SERVICE})
_TEXT: Final = 1_000  # characters of a status, which travels in a header
_LACKING: Final = "Spillway has no statistics, configurations, repository, shared memory or settings of this protocol"


@dataclass(frozen=True, slots=True)
class _Call:
    """Who calls, and what the call's metadata say for each query of it."""

    caller: Caller
    metadata: Mapping[str, str]


class _Ended(NamedTuple):
    """What a query or a question came to; where there is an `error`, `response` says whose it is."""

    response: Any
    status: Status = statuses.OK
    error: str = ""
    reason: str = ""
    request_id: str = ""


class _Router(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio has no types
    """Finds what answers a call before its message is received: who may not call costs no memory."""

    def __init__(self, handler: Callable[[str, dict[str, str]], grpc.RpcMethodHandler | None]) -> None:
        self._handler = handler

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        given = ((name, value) for name, value in details.invocation_metadata if isinstance(value, str))
        return self._handler(details.method.removeprefix("/"), dict(given))


class GrpcFront:
    """The gRPC server of a gateway, on the event loop that starts it."""

    def __init__(
        self,
        pipelines: Pipelines,
        authorize: Callable[[Mapping[str, str]], Caller],
        *,
        host: str,
        port: int,
        credentials: grpc.ServerCredentials | None = None,
        room: Room | None = None,
    ) -> None:
        """Make a server that listens once it is started.

        `authorize` returns who calls, by the call's metadata, or raises a SpillwayError. `room` is for the bytes of
        queries under way, of all protocols.
        """
        self._pipelines, self._authorize, self._credentials = pipelines, authorize, credentials
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._room = room or Room()
        self._limits = _largest(served.limits for served in pipelines.served.values())
        self._stopping = asyncio.Event()
        self._running: set[asyncio.Task[Answered]] = set()
        self._readers: set[asyncio.Task[None]] = set()
        self._server: grpc.aio.Server | None = None
        self.seats = seats = asyncio.Semaphore(OPEN_CALLS)
        self._open = {
            f"{HEALTH}/Check": _method(self._check, seats),
            f"{HEALTH}/Watch": _method(self._watch, seats),
            f"{SERVICE}/ServerLive": _method(self._live, seats),
            f"{SERVICE}/ServerReady": _method(self._server_ready, seats),
        }
        self._methods = {
            "ServerMetadata": self._server_metadata,
            "ModelReady": self._model_ready,
            "ModelMetadata": self._model_metadata,
            "ModelInfer": self._infer,
        }

    async def start(self) -> int:
        """Listen, and return the port. Raises UsageError where that is not possible."""
        options = (
            ("grpc.max_receive_message_length", self._limits.max_message_bytes + ENVELOPE),
            ("grpc.max_send_message_length", -1),  # outcomes are bounded; as JSON, some are longer
            ("grpc.so_reuseport", 0),  # else two gateways share a port, and neither knows
            ("grpc.max_allowed_incoming_connections", CONNECTIONS),
            ("grpc.server_handshake_timeout_ms", int(1e3 * MESSAGE_SECONDS)),  # of one that says nothing
            ("grpc.max_connection_idle_ms", int(1e3 * IDLE_SECONDS)),  # without a call: clients connect again unasked
            ("grpc.keepalive_time_ms", int(1e3 * IDLE_SECONDS)),  # clients that are gone without a word
        )
        self._server = grpc.aio.server(options=options, maximum_concurrent_rpcs=CALLS)
        self._server.add_generic_rpc_handlers((_Router(self._handler),))
        try:
            if self._credentials is None:
                port = self._server.add_insecure_port(self._address)
            else:
                port = self._server.add_secure_port(self._address, self._credentials)
        except RuntimeError as error:
            raise UsageError(f"gRPC cannot listen on {self._address}: {error}; give another --grpc") from error
        await self._server.start()
        return int(port)

    async def stop(self, grace: float) -> None:
        """Take no more queries, and end when those under way are answered, at most `grace` seconds from now."""
        self._stopping.set()
        for reader in self._readers:
            reader.cancel()
        if self._server is not None:
            await self._server.stop(grace)

    def _handler(self, path: str, metadata: Mapping[str, str]) -> grpc.RpcMethodHandler | None:
        """Return what answers a method for whoever calls it; None where there is no such service."""
        service, _, name = path.partition("/")
        if service != SERVICE or path in self._open:
            return self._open.get(path)
        try:
            call = _Call(self._authorize(metadata), metadata)
        except SpillwayError as error:
            return _refusal(statuses.status_of(error), str(error))
        if name == "ModelStreamInfer":
            return grpc.stream_stream_rpc_method_handler(partial(self._stream, call))
        method = self._methods.get(name)
        if method is None:
            return _refusal(statuses.UNSUPPORTED, f"{name:.80}: {_LACKING}; see /metrics and `spillway status`")
        return _method(partial(method, call))

    @property
    def _ready(self) -> bool:
        return self._pipelines.ready and not self._stopping.is_set()

    def _find(self, call: _Call, model: Any) -> Served:
        return self._pipelines.find(model.name, model.version, call.caller.pipelines)

    # What is there.

    async def _live(self, _raw: bytes, _context: Any) -> Any:
        return pb.ServerLiveResponse(live=True)

    async def _server_ready(self, _raw: bytes, _context: Any) -> Any:
        return pb.ServerReadyResponse(ready=self._ready)

    async def _server_metadata(self, _call: _Call, _raw: bytes, _context: Any) -> Any:
        return pb.ServerMetadataResponse(**SERVER)

    async def _model_ready(self, call: _Call, raw: bytes, _context: Any) -> Any:
        self._find(call, pb.ModelReadyRequest.FromString(raw))
        return pb.ModelReadyResponse(ready=self._ready)

    async def _model_metadata(self, call: _Call, raw: bytes, _context: Any) -> Any:
        served = self._find(call, pb.ModelMetadataRequest.FromString(raw))
        return grpc_messages.metadata(served.signature.metadata(served.version))

    async def _check(self, raw: bytes, _context: Any) -> Any:
        service = pb.HealthCheckRequest.FromString(raw).service
        if service not in _HEALTH_OF:
            text = f"there is no service {service!r:.80} here; ask of {SERVICE!r} or of none"
            raise RefusedError(NOT_FOUND, text)
        return pb.HealthCheckResponse(status=self._health(service))

    async def _watch(self, raw: bytes, context: Any) -> None:
        service, before = pb.HealthCheckRequest.FromString(raw).service, None
        while True:
            if (now := self._health(service)) != before:
                await context.write(pb.HealthCheckResponse(status=now).SerializeToString())
                before = now
            if self._stopping.is_set():
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), WATCH_SECONDS)

    def _health(self, service: str) -> int:
        told = pb.HealthCheckResponse
        if service not in _HEALTH_OF:
            return int(told.SERVICE_UNKNOWN)
        return int(told.SERVING if self._ready else told.NOT_SERVING)

    # Queries.

    async def _infer(self, call: _Call, raw: bytes, context: Any) -> Any:
        ended = await self._query(call, raw, context.time_remaining())
        if ended.status is not statuses.OK:
            await _abort(context, ended)
        return ended.response

    async def _stream(self, call: _Call, requests: AsyncIterator[bytes], context: Any) -> None:
        """Answer the queries of a stream as they end."""
        if "idempotency-key" in call.metadata:
            told = "idempotency-key: is for ModelInfer, as the queries of a stream would all have the same"
            await _abort(context, _Ended(None, statuses.INVALID, told, reasons.BAD_INPUT))
        room, turn = asyncio.Semaphore(OF_A_STREAM), asyncio.Lock()

        async def one(raw: bytes) -> None:
            try:
                ended = await self._query(call, raw, context.time_remaining())
                error = grpc_messages.sendable(ended.error)
                answer = pb.ModelStreamInferResponse(error_message=error, infer_response=ended.response)
                async with turn, asyncio.timeout(WRITE_SECONDS):
                    await context.write(answer.SerializeToString())
            finally:
                room.release()

        async def read(group: asyncio.TaskGroup) -> None:
            async for raw in requests:
                await room.acquire()
                group.create_task(one(raw))

        unread = False
        try:
            await context.send_initial_metadata(())  # else no status could be sent while the first answer is unread
            async with asyncio.TaskGroup() as group:
                reader = group.create_task(read(group))
                self._readers.add(reader)
                reader.add_done_callback(self._readers.discard)
        except* (TimeoutError, grpc.aio.InternalError):  # or it has cancelled the call
            unread = True
        if unread:
            told = f"no answer was read for {WRITE_SECONDS:.0f} s"
            await _abort(context, _Ended(None, statuses.TOO_MANY, told))
        if self._stopping.is_set():
            await _abort(context, _Ended(None, statuses.UNAVAILABLE, "the gateway stops; open a new stream"))

    async def _query(self, call: _Call, raw: bytes, remaining: float | None) -> _Ended:
        """Run one query. Whatever is wrong with it is in the answer; nothing is raised but cancellation."""
        served: Served | None = None
        asked: Asked | None = None
        model = name = client_id = ""
        try:
            with self._room.hold(len(raw)):
                message = grpc_messages.parsed(raw, self._limits)
                name, client_id = message.model_name, message.id
                served = self._pipelines.find(name, message.model_version, call.caller.pipelines)
                request = grpc_messages.read_request(message, served.signature, served.limits)
                ask = ask_of(request.parameters, served.limits, needs=served.signature.needs)
                margin = 0.0 if remaining is None else min(_MARGIN, _MARGIN_SHARE * remaining)
                seconds = None if remaining is None else max(remaining - margin, _LEAST)
                asked = Asked.of(call.metadata, call.caller, request.inputs, ask, request.id, seconds)
                del message
                answered = await self._outcome(served, asked, None if seconds is None else seconds + margin / 2)
                return _ended(served, request, answered)
        except SpillwayError as error:
            status = statuses.status_of(error)
            if served is not None:
                model = served.version
                if asked is None:  # else it is counted already
                    served.of(PROTOCOL).by_status[status.grpc] += 1
            response = grpc_messages.answer(name, model, client_id, (), {})
            return _Ended(response, status, str(error), getattr(error, "reason", ""))

    async def _outcome(self, served: Served, asked: Asked, seconds: float | None) -> Answered:
        """Wait for a query's answer. The query goes on where the client goes away, or its deadline passes."""
        task = asyncio.create_task(served.ask(asked, PROTOCOL))
        try:
            await asyncio.wait([task], timeout=seconds)
        finally:
            if not task.done():
                self._running.add(task)
                task.add_done_callback(self._running.discard)
                task.add_done_callback(partial(_pass_over, served))
        if task.done():
            return task.result()
        text = f"no outcome came within the call's own deadline ({seconds or 0:.3f} s were left); the query goes on"
        return Answered(statuses.LATE, text, "", None)


def _pass_over(served: Served, task: asyncio.Task[Answered]) -> None:
    if not task.cancelled() and task.exception() is None and task.result().outcome is not None:
        served.of(PROTOCOL).passed_over += 1


def _ended(served: Served, request: InferRequest, answered: Answered) -> _Ended:
    """Return an answer as the protocol has it. Raises WireError for outputs that it has no tensors for."""
    outcome, right = answered.outcome, answered.status is statuses.OK
    parameters = {} if outcome is None else answer_parameters(outcome, answered.request_id)
    tensors = output_tensors(outcome.outputs, request) if outcome is not None and right else ()
    response = grpc_messages.answer(served.name, served.version, request.id, tensors, parameters)
    text, reason = answered.error, "" if outcome is None else outcome.reason
    if outcome is not None and outcome.kind == PREDICTION and outcome.late:
        text, reason = f"{text}; an error of gRPC has no outputs: ask by HTTP to get late ones", "late"
    return _Ended(response, answered.status, text, reason, answered.request_id)


def _method(method: Callable[[bytes, Any], Awaitable[Any]], seats: asyncio.Semaphore | None = None) -> Any:
    """Return the handler of a method that is given a message's bytes and may raise SpillwayError.

    `seats`: how many calls of it and others there may be. A handler of streams, as others are only run when the message
    has come: who sends none would hold a call for ever.
    """

    async def answer(messages: AsyncIterator[bytes], context: Any) -> None:
        try:
            if seats is not None and seats.locked():
                raise RefusedError(statuses.TOO_MANY, f"{OPEN_CALLS} calls like this are under way; try again later")
            async with seats or contextlib.nullcontext():
                response = await method(await _message(messages), context)
                if response is not None:
                    await context.write(response.SerializeToString())
        except grpc.aio.InternalError:
            raise asyncio.CancelledError from None  # by the client
        except DecodeError as error:
            await _abort(context, _Ended(None, statuses.INVALID, f"the message is not this method's: {error}"))
        except SpillwayError as error:
            await _abort(context, _Ended(None, statuses.status_of(error), str(error)))

    return grpc.stream_stream_rpc_method_handler(answer)


async def _message(messages: AsyncIterator[bytes]) -> bytes:
    """Return a call's one message. Raises WireError(BAD_INPUT) where none comes in time."""
    with contextlib.suppress(TimeoutError, StopAsyncIteration):
        async with asyncio.timeout(MESSAGE_SECONDS):
            return await anext(messages)
    raise bad(f"the call has no message, or none within {MESSAGE_SECONDS:.0f} s")


def _refusal(status: Status, text: str) -> grpc.RpcMethodHandler:
    """Return a handler that receives nothing, of any kind of method."""

    async def refuse(_requests: Any, context: Any) -> None:
        await _abort(context, _Ended(None, status, text))

    return grpc.stream_stream_rpc_method_handler(refuse)


async def _abort(context: Any, ended: _Ended) -> NoReturn:
    told = {"reason": ended.reason, "request-id": ended.request_id}
    metadata = tuple((name, value) for name, value in told.items() if value)
    text = grpc_messages.sendable(ended.error[:_TEXT])
    with contextlib.suppress(grpc.aio.InternalError):
        await context.abort(grpc.StatusCode[ended.status.grpc], text, metadata)
    raise asyncio.CancelledError  # the client has cancelled the call, and so abort has not raised what ends it


def _largest(limits: Iterable[Limits]) -> Limits:
    """Return the loosest bounds of all pipelines, as a message is parsed before it is known whose it is."""
    every = list(limits) or [DEFAULT_LIMITS]
    return Limits(**{bound.name: max(getattr(each, bound.name) for each in every) for bound in fields(Limits)})


def credentials_of(certificate: Path | None, key: Path | None, client_ca: Path | None) -> grpc.ServerCredentials | None:
    """Return how TLS is spoken, by files that `tls_context` has found to be good; None where it is not."""
    if certificate is None or key is None:
        return None
    pair = key.read_bytes(), certificate.read_bytes()
    roots = None if client_ca is None else client_ca.read_bytes()
    return grpc.ssl_server_credentials([pair], roots, require_client_auth=roots is not None)
