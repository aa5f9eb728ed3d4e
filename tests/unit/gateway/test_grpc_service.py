"""The gateway's gRPC over loopback, with pipelines whose clients answer without Kafka."""

import asyncio
import contextlib
import hashlib
import inspect
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.gateway.asking import Pipelines
from spillway.agents.gateway.receiving import Room
from spillway.agents.gateway.security import Caller, Gatekeeper
from spillway.agents.gateway.signature import Signature
from spillway.lineage.errors import WireError
from spillway.lineage.limits import DEFAULT_LIMITS
from spillway.lineage.message import DROPPED, FAILED, PREDICTION, Outcome
from spillway.producers.connection import ClientSettings
from spillway.topology.load import Pipeline

grpc = pytest.importorskip("grpc", reason="pip install 'spillway[grpc]'")
service = pytest.importorskip("spillway.agents.gateway.grpc_service", reason="pip install 'spillway[grpc]'")
from spillway.agents.gateway import grpc_messages  # noqa: E402
from spillway.agents.gateway.protocol import inference_pb2 as pb  # noqa: E402

Code = grpc.StatusCode
INFER, STREAM = "ModelInfer", "ModelStreamInfer"
WAIT = 20.0
ANY = Signature("p", {}, None, needs=False)
FILE = """
name: echo
slo: 2s
limits: {max_message_bytes: 12MiB, max_tensor_bytes: 12MiB}
outputs: {x: {dtype: float32, shape: [null]}}
stages:
  - name: one
    emulated: {alpha: 1ms, beta: 1ms}
    inputs: {x: {dtype: float32, shape: [null]}, z: {dtype: complex64}, text: {dtype: str}}
"""
OTHER = FILE.replace("echo", "other").replace("outputs: {x: {dtype: float32, shape: [null]}}", "")


class Client:
    """Answers with the inputs, or as a parameter of the query says."""

    def __init__(self):
        self.queries, self.release, self.ended = [], asyncio.Event(), 0

    async def predict(self, inputs, own, **options):
        self.queries.append((inputs, own, options))
        request_id = options["request_id"] or f"made-{len(self.queries)}"
        if own.get("hold"):
            await self.release.wait()
        self.ended += 1
        if own.get("fail"):
            return Outcome(FAILED, reason="model-raised", text="boom \udcff", stage="one", request_id=request_id)
        if own.get("drop"):
            return Outcome(DROPPED, reason="expired", stage="one", latency=0.9, late=True, request_id=request_id)
        flags = {"one": {"variant": "a"}}
        late = bool(own.get("late"))
        return Outcome(PREDICTION, dict(inputs), flags=flags, latency=0.25, late=late, request_id=request_id)


TOKENS = {
    hashlib.sha256(token.encode()).digest(): caller
    for token, caller in {"me": Caller("me"), "other": Caller("o", frozenset({"other"}))}.items()
}
WRONG, ME, OTHERS = ((("authorization", f"Bearer {token}"),) for token in ("wrong", "me", "other"))


def authorize(metadata):
    if "authorization" not in metadata:
        return Caller("anybody")
    return Gatekeeper(TOKENS, "127.0.0.1").caller(metadata["authorization"], None)


class Front:
    """A server and a channel to it."""

    def __init__(self, front, pipelines, channel, port, room):
        self.front, self.pipelines, self.channel, self.port, self.room = front, pipelines, channel, port, room
        self.client = pipelines.served["echo"].client
        self.served = pipelines.served["echo"]

    def unary(self, name, request, response, path=service.SERVICE, **options):
        call = self.channel.unary_unary(
            f"/{path}/{name}", request_serializer=type(request).SerializeToString, response_deserializer=response
        )
        return call(request, **{"timeout": WAIT, **options})

    def infer(self, request, **options):
        return self.unary(INFER, request, pb.ModelInferResponse.FromString, **options)

    def stream(self, requests, **options):
        serializer, read = pb.ModelInferRequest.SerializeToString, pb.ModelStreamInferResponse.FromString
        call = self.channel.stream_stream(f"/{service.SERVICE}/{STREAM}", serializer, read)
        return call(requests, **{"timeout": WAIT, **options})

    async def refused(self, request, **options):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.infer(request, **options)
        return caught.value


@contextlib.asynccontextmanager
async def front(room):
    settings = ClientSettings(bootstrap="localhost:1")
    pipelines = Pipelines([Pipeline.parse(text) for text in (FILE, OTHER)], settings)
    for served in pipelines.served.values():
        served.client = Client()
    server = service.GrpcFront(pipelines, authorize, host="127.0.0.1", port=0, room=room)
    port = await server.start()
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
            yield Front(server, pipelines, channel, port, room)
    finally:
        await server.stop(0)


def over_grpc(room=None, **constants):
    """Make a test of what plays against a front, for which constants of the service are others."""

    def made(play):
        async def whole(given):
            async with asyncio.timeout(3 * WAIT), front(room) as there:
                await play(there, **given)

        def test(**given):
            with pytest.MonkeyPatch.context() as patch:
                for name, value in constants.items():
                    patch.setattr(service, name, value)
                asyncio.run(whole(given))

        _, *fixtures = inspect.signature(play).parameters.values()
        test.__name__, test.__signature__ = play.__name__, inspect.Signature(fixtures)
        return test

    return made


async def until(condition):
    async with asyncio.timeout(WAIT):
        while not condition():  # noqa: ASYNC110 - what it waits for has no event
            await asyncio.sleep(0.01)


def raw(values=(1.0, 2.0), model="echo", parameters=(), **other):
    request = pb.ModelInferRequest(model_name=model, **other)
    request.inputs.add(name="x", datatype="FP32", shape=[len(values)])
    request.raw_input_contents.append(np.array(values, "<f4").tobytes())
    for name, value in dict(parameters).items():
        field = {bool: "bool_param", int: "int64_param", str: "string_param"}[type(value)]
        setattr(request.parameters[name], field, value)
    return request


def typed(datatype="FP32", shape=(2,), name="x", **contents):
    request = pb.ModelInferRequest(model_name="echo")
    request.inputs.add(name=name, datatype=datatype, shape=shape, contents=pb.InferTensorContents(**contents))
    return request


@over_grpc()
async def test_raw_inputs_come_back_raw_with_what_became_of_the_query(there):
    parameters = {"timeout": 500_000, "key": "k", "mine": "own"}
    metadata = (("x-request-id", "seen"), *ME)
    answer = await there.infer(raw(id="7", parameters=parameters), metadata=metadata)
    assert (answer.model_name, answer.model_version, answer.id) == ("echo", there.served.version, "7")
    assert [(each.name, each.datatype, list(each.shape)) for each in answer.outputs] == [("x", "FP32", [2])]
    assert list(answer.raw_output_contents) == [struct.pack("<2f", 1, 2)]
    assert answer.parameters["request_id"].string_param == "made-1"
    assert answer.parameters["latency_ms"].double_param == 250.0
    assert answer.parameters["flags"].string_param == '{"one":{"variant":"a"}}'
    [(_, own, options)] = there.client.queries
    assert (own, options["deadline"], options["key"]) == ({"mine": "own"}, 0.5, "k")
    assert options["headers"] == {"x-client-id": "7", "x-client-request-id": "seen"}
    assert there.served.of("grpc").by_status == {"OK": 1}


@pytest.mark.parametrize(
    ("datatype", "contents", "wanted"),
    [
        ("FP32", {"fp32_contents": [1.5, -2]}, np.array([1.5, -2], np.float32)),
        ("FP64", {"fp64_contents": [1.5, -2]}, np.array([1.5, -2])),
        ("INT8", {"int_contents": [-128, 127]}, np.array([-128, 127], np.int8)),
        ("INT64", {"int64_contents": [-(1 << 63), 1]}, np.array([-(1 << 63), 1])),
        ("UINT16", {"uint_contents": [0, 65535]}, np.array([0, 65535], np.uint16)),
        ("UINT64", {"uint64_contents": [0, (1 << 64) - 1]}, np.array([0, (1 << 64) - 1], np.uint64)),
        ("BOOL", {"bool_contents": [True, False]}, np.array([True, False])),
    ],
)
@over_grpc()
async def test_typed_inputs(there, datatype, contents, wanted):
    await there.infer(typed(datatype, **contents))
    [(inputs, _, _)] = there.client.queries
    np.testing.assert_array_equal(inputs["x"], wanted)
    assert inputs["x"].dtype == wanted.dtype


@over_grpc()
async def test_a_text_and_a_structure(there):
    request = typed("BYTES", (1,), "text", bytes_contents=["Zoë".encode()])
    request.inputs.add(name="more", datatype="BYTES", shape=[1])
    request.inputs[1].parameters["content_type"].string_param = "json"
    request.inputs[1].contents.bytes_contents.append(b'{"a": [1, null]}')
    answer = await there.infer(request)
    assert there.client.queries[0][0] == {"text": "Zoë", "more": {"a": [1, None]}}
    assert answer.raw_output_contents[0] == struct.pack("<I", 4) + "Zoë".encode()
    assert answer.outputs[1].parameters["content_type"].string_param == "json"


def without_value():
    request = raw()
    request.parameters["p"].SetInParent()
    return request


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (typed(fp32_contents=[1]), "fp32_contents has 1 elements"),
        (typed(fp64_contents=[1, 2]), "belong in fp32_contents"),
        (typed("INT8", int_contents=[1, 300]), "are not INT8"),
        (typed("FP16", fp32_contents=[1, 2]), "comes raw only"),
        (typed("FP31"), "there is no datatype"),
        (typed(shape=(-1,)), "has 0 elements"),
        (typed(shape=(1,) * 50, fp32_contents=[1]), "its rank 50 is over the limit"),
        (raw(id="x" * 300), "at most 256 characters"),
        (raw(parameters={"timeout": -1}), "microseconds"),
        (without_value(), "parameter 'p': has no value"),
        (raw(outputs=[{"name": "nothing"}]), "has no output 'nothing'"),
        (raw(inputs=[{"name": "y", "datatype": "FP32"}]), "1 entries for 2 inputs"),
        (raw(model="nowhere"), "there is no pipeline 'nowhere'"),
        (raw(model_version="older"), "is served as version"),
    ],
)
@over_grpc()
async def test_what_is_wrong_is_said(there, request_, said):
    error = await there.refused(request_)
    assert said in error.details()
    too_large = "over the limit" in said
    missing = "no pipeline" in said or "version" in said
    wanted = Code.NOT_FOUND if missing else Code.RESOURCE_EXHAUSTED if too_large else Code.INVALID_ARGUMENT
    assert error.code() is wanted
    assert not there.client.queries
    await there.infer(raw())


@over_grpc()
async def test_ends_of_queries(there):
    wanted = {
        "fail": (Code.INTERNAL, "model-raised", "failed: model-raised at one: boom ?"),
        "drop": (Code.DEADLINE_EXCEEDED, "expired", "dropped: expired at one: after 900 ms of 2000 ms"),
        "late": (Code.DEADLINE_EXCEEDED, "late", "answered late: after 250 ms of 2000 ms; an error of gRPC has no"),
    }
    for number, (what, (code, reason, text)) in enumerate(wanted.items(), 1):
        error = await there.refused(raw(parameters={what: True}))
        assert error.code() is code
        assert error.details().startswith(text)
        trailing = dict(error.trailing_metadata())
        assert (trailing["reason"], trailing["request-id"]) == (reason, f"made-{number}")


@over_grpc()
async def test_one_error_in_a_stream_is_its_own_and_answers_come_as_they_are_ready(there):
    async def requests():
        yield raw(id="slow", parameters={"hold": True})
        yield raw(id="bad", model="nowhere")
        yield raw(id="fails", parameters={"fail": True})
        for number in range(300):
            yield raw((float(number),), id=str(number))

    seen = {}
    async for answer in there.stream(requests()):
        seen[answer.infer_response.id] = answer
        if len(seen) == 302:
            assert "slow" not in seen
            there.client.release.set()
    assert len(seen) == 303
    assert list(seen)[-1] == "slow"
    assert "no pipeline 'nowhere'" in seen["bad"].error_message
    assert seen["fails"].error_message.startswith("failed: model-raised")
    assert seen["fails"].infer_response.parameters["reason"].string_param == "model-raised"
    for number in range(300):
        assert not seen[str(number)].error_message
        assert seen[str(number)].infer_response.raw_output_contents[0] == struct.pack("<f", number)


@over_grpc(OF_A_STREAM=4)
async def test_a_stream_takes_no_more_than_its_bound(there):
    call = there.stream([raw(parameters={"hold": True}) for _ in range(12)])
    await until(lambda: len(there.client.queries) == 4)
    await there.infer(raw())
    assert len(there.client.queries) == 5
    there.client.release.set()
    assert len([answer async for answer in call]) == 12


@over_grpc(WRITE_SECONDS=0.5)
async def test_a_stream_that_is_not_read_ends_with_a_status_and_no_traceback(there, monkeypatch, caplog):
    abort, aborted = service._abort, []

    async def watched(context, ended):
        aborted.append(ended)
        await abort(context, ended)

    monkeypatch.setattr(service, "_abort", watched)
    call = there.stream([raw([1.0] * (1 << 20))] * 4)
    await until(lambda: aborted)
    with pytest.raises(grpc.aio.AioRpcError, match="no answer was read"):
        [each async for each in call]
    assert not caplog.text


@over_grpc(OPEN_CALLS=2, MESSAGE_SECONDS=1.0)
async def test_calls_without_a_token_leave_room_for_queries_and_end(there):
    live = f"/{service.SERVICE}/ServerLive"
    waiting = [there.channel.stream_stream(live)(timeout=WAIT) for _ in range(2)]
    ends = [asyncio.create_task(call.code()) for call in waiting]
    await until(there.front.seats.locked)
    with pytest.raises(grpc.aio.AioRpcError, match="2 calls"):
        await there.channel.unary_unary(live)(b"", timeout=WAIT)
    await there.infer(raw())
    assert await asyncio.gather(*ends) == [Code.INVALID_ARGUMENT] * 2
    await there.channel.unary_unary(live)(b"", timeout=WAIT)


async def ended(port):
    """Wait until the server closes a connection that says nothing."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while await reader.read(1 << 16):
            pass
    except ConnectionError:
        pass
    finally:
        writer.close()


@over_grpc(CONNECTIONS=4)
async def test_connections_are_bounded_and_the_next_is_served_when_one_goes(there):
    waiting = [asyncio.create_task(ended(there.port)) for _ in range(12)]
    await until(lambda: sum(each.done() for each in waiting) == 8)
    for each in waiting:
        each.cancel()
    await there.infer(raw(), wait_for_ready=True)


@over_grpc(MESSAGE_SECONDS=0.2)
async def test_a_connection_that_says_nothing_ends(there):
    async with asyncio.timeout(WAIT):
        await ended(there.port)


@over_grpc()
async def test_a_streams_idempotency_key_is_refused_and_a_calls_names_one_query(there):
    metadata = (("idempotency-key", "again"),)
    with pytest.raises(grpc.aio.AioRpcError, match="idempotency-key"):
        [each async for each in there.stream([raw()], metadata=metadata)]
    answers = [await there.infer(raw(), metadata=metadata) for _ in range(2)]
    other = await there.infer(raw(), metadata=(*metadata, *ME))
    ids = [answer.parameters["request_id"].string_param for answer in (*answers, other)]
    assert ids[0] == ids[1] != ids[2]
    assert (await there.refused(raw(), metadata=(("idempotency-key", "a b"),))).code() is Code.INVALID_ARGUMENT


@over_grpc()
async def test_a_calls_own_deadline_is_answered_before_the_client_gives_up(there):
    error = await there.refused(raw(parameters={"hold": True}), timeout=1.0)
    assert error.code() is Code.DEADLINE_EXCEEDED
    assert "the query goes on" in error.details()
    assert 0.5 < there.client.queries[0][2]["deadline"] < 1.0
    there.client.release.set()
    await until(lambda: there.served.of("grpc").passed_over == 1)


@over_grpc()
async def test_a_client_that_goes_away_leaves_its_query_running(there):
    call = there.infer(raw(parameters={"hold": True}))
    stream = there.stream([raw(parameters={"hold": True})])
    reading = asyncio.ensure_future(stream.read())
    await until(lambda: len(there.client.queries) == 2)
    call.cancel()
    stream.cancel()
    await asyncio.wait({reading})
    assert there.client.ended == 0
    await until(lambda: there.served.under_way == 2)
    await there.infer(raw())
    there.client.release.set()
    await until(lambda: there.served.of("grpc").passed_over == 2)
    assert there.client.ended == 3


@over_grpc()
async def test_who_may_not_call_is_refused(there):
    error = await there.refused(raw(), metadata=WRONG)
    assert (error.code(), error.details()) == (Code.UNAUTHENTICATED, "the token is not known here")
    with pytest.raises(grpc.aio.AioRpcError, match="UNAUTHENTICATED"):
        [each async for each in there.stream([raw()], metadata=WRONG)]
    error = await there.refused(raw(), metadata=OTHERS)
    assert error.code() is Code.NOT_FOUND
    assert "other" in error.details()
    await there.infer(raw(model="other"), metadata=OTHERS)
    live = await there.unary("ServerLive", pb.ServerLiveRequest(), pb.ServerLiveResponse.FromString, metadata=WRONG)
    assert live.live


@over_grpc()
async def test_what_is_there(there):
    server = await there.unary("ServerMetadata", pb.ServerMetadataRequest(), pb.ServerMetadataResponse.FromString)
    assert (server.name, list(server.extensions)) == ("spillway", ["binary_tensor_data", "model_stream_infer"])
    asked = pb.ModelMetadataRequest(name="echo", version=there.served.version)
    model = await there.unary("ModelMetadata", asked, pb.ModelMetadataResponse.FromString)
    assert [(each.name, each.datatype, list(each.shape)) for each in model.inputs] == [
        ("x", "FP32", [-1]),
        ("text", "BYTES", [1]),
    ]
    assert (model.platform, [each.name for each in model.outputs]) == ("spillway", ["x"])
    ready = pb.ModelReadyRequest(name="echo")
    assert (await there.unary("ModelReady", ready, pb.ModelReadyResponse.FromString)).ready
    with pytest.raises(grpc.aio.AioRpcError, match="did you mean 'echo'"):
        await there.unary("ModelReady", pb.ModelReadyRequest(name="ecko"), pb.ModelReadyResponse.FromString)
    there.pipelines.draining = True
    assert not (await there.unary("ModelReady", ready, pb.ModelReadyResponse.FromString)).ready
    server = await there.unary("ServerReady", pb.ServerReadyRequest(), pb.ServerReadyResponse.FromString)
    assert not server.ready


@over_grpc()
async def test_health(there):
    def check(name):
        request = pb.HealthCheckRequest(service=name)
        return there.unary("Check", request, pb.HealthCheckResponse.FromString, path=service.HEALTH)

    for name in ("", service.SERVICE):
        assert (await check(name)).status == pb.HealthCheckResponse.SERVING
    with pytest.raises(grpc.aio.AioRpcError, match="NOT_FOUND"):
        await check("nothing")
    serializer, read = pb.HealthCheckRequest.SerializeToString, pb.HealthCheckResponse.FromString
    watch = there.channel.unary_stream(f"/{service.HEALTH}/Watch", serializer, read)
    watched = watch(pb.HealthCheckRequest(), timeout=WAIT)
    assert (await watched.read()).status == pb.HealthCheckResponse.SERVING
    stopping = asyncio.ensure_future(there.front.stop(WAIT))
    assert (await watched.read()).status == pb.HealthCheckResponse.NOT_SERVING
    await stopping


@pytest.mark.parametrize("name", ["ModelStatistics", "ModelConfig", "RepositoryIndex", "CudaSharedMemoryStatus"])
@over_grpc()
async def test_what_spillway_lacks_is_said(there, name):
    with pytest.raises(grpc.aio.AioRpcError, match=f"{name}: Spillway has no") as caught:
        await there.unary(name, pb.ServerLiveRequest(), bytes)
    assert caught.value.code() is Code.UNIMPLEMENTED


@over_grpc()
async def test_a_large_message_and_one_over_the_limit(there):
    values = np.arange(6 << 18, dtype="<f4")
    answer = await there.infer(raw(values, id="large"))
    assert answer.raw_output_contents[0] == values.tobytes()
    assert (await there.refused(raw(np.zeros(13 << 18, "<f4")))).code() is Code.RESOURCE_EXHAUSTED


@over_grpc()
async def test_a_message_of_empty_fields_is_refused_before_it_is_parsed(there):
    request = pb.ModelInferRequest(model_name="echo", raw_input_contents=[b""] * 20_000)
    ints = typed("INT64", (1,), int64_contents=[0] * (3 << 20))
    assert "the number of fields" in (await there.refused(request)).details()
    assert "what the typed contents take is over" in (await there.refused(ints)).details()
    assert len(ints.SerializeToString()) < 4 << 20


@given(st.one_of(st.binary(max_size=200), st.integers(0, 120), st.tuples(st.integers(0, 119), st.integers(0, 255))))
def test_bytes_are_a_request_or_refused(how):
    message = raw(id="7", parameters={"timeout": 1, "key": "k"}, outputs=[{"name": "x"}])
    message.inputs.add(name="y", datatype="INT8", shape=[1], contents=pb.InferTensorContents(int_contents=[3]))
    data = bytearray(message.SerializeToString())
    if isinstance(how, bytes):
        data = how
    elif isinstance(how, int):
        data = data[:how]
    else:
        data[how[0] % len(data)] = how[1]
    with contextlib.suppress(WireError):
        grpc_messages.read_request(grpc_messages.parsed(bytes(data), DEFAULT_LIMITS), ANY, DEFAULT_LIMITS)


@over_grpc(room=Room(100))
async def test_a_query_without_room_is_refused(there):
    assert (await there.refused(raw(np.zeros(30)))).code() is Code.RESOURCE_EXHAUSTED
    for _ in range(3):
        await there.infer(raw())
    assert there.room.taken == 0


@over_grpc()
async def test_stopping_answers_what_is_under_way(there):
    call = there.infer(raw(parameters={"hold": True}))
    stream = there.stream(forever([raw(id="s", parameters={"hold": True})]))
    first = asyncio.ensure_future(stream.read())
    await until(lambda: len(there.client.queries) == 2)
    stopping = asyncio.ensure_future(there.front.stop(WAIT))
    await until(there.front._stopping.is_set)
    there.client.release.set()
    assert (await call).outputs
    assert (await first).infer_response.id == "s"
    with pytest.raises(grpc.aio.AioRpcError, match="the gateway stops") as caught:
        await stream.read()
    assert caught.value.code() is Code.UNAVAILABLE
    await stopping


async def forever(requests):
    for request in requests:
        yield request
    await asyncio.Event().wait()
