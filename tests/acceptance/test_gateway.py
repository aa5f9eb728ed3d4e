"""A served pipeline asked by HTTP, as clients in any language do."""

import concurrent.futures
import json
import struct
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from spillway.agents.gateway.protocol import inference_pb2 as pb
from spillway.topology.topics import egress
from tests.waiting import until

from .serving import SPILLWAY, Gateway, command, read_egress, serving

MODELS = """
import time


class Act:
    def predict(self, batch):
        for query in batch:
            if "why" in query:
                raise ValueError(query["why"])
            time.sleep(query.get("seconds", 0))
        return [{"said": f"Hello, {query.get('name')}!", "twice": query.get("x", 0) * 2} for query in batch]
"""
FILE = """
name: {name}
slo: 20s
partitions: 3
policy: naive
outputs:
  said: {{dtype: str}}
  twice: {{}}
stages:
  - {{name: act, model: asked:Act}}
"""
TOKENS = "one-token-of-many team\nanother-token-of-many other elsewhere\n"
BEARER = {"Authorization": "Bearer one-token-of-many"}


@pytest.fixture(scope="module")
def project(tmp_path_factory, module_name):
    folder = tmp_path_factory.mktemp("gateway")
    (folder / "asked.py").write_text(MODELS)
    (folder / "pipeline.yaml").write_text(FILE.format(name=module_name))
    (folder / "tokens").write_text(TOKENS)
    return folder


@pytest.fixture(scope="module")
def module_name(request):
    return f"gateway-{request.module.__name__.rpartition('.')[2].replace('_', '-')}"


@pytest.fixture(scope="module")
def gateway(project, module_name, broker):
    with serving(project / "pipeline.yaml", module_name, broker, project, "--http", "127.0.0.1:0") as served:
        yield Gateway(served.gateway_port(), module_name)
        assert served.stop() == 0, served.logs()
        assert "draining" in (served.run_dir / module_name / "logs" / "gateway.0.log").read_text()


def text_tensor(name, text):
    return {"name": name, "datatype": "BYTES", "shape": [1], "data": [text]}


def test_plain_json(gateway):
    status, told = gateway.predict({"inputs": {"name": "Ada", "x": 4}})
    assert (status, told["outputs"]) == (200, {"said": "Hello, Ada!", "twice": 8})
    status, told = gateway.predict({"inputs": {"why": "boom"}})
    assert (status, told["reason"]) == (500, "model-raised")
    assert "boom" in told["error"]
    status, told = gateway.predict({"inputs": {"seconds": 0.4}, "timeout_ms": 100})
    assert (status, told["late"], told["outputs"]["twice"]) == (504, True, 0)
    assert "of 100 ms" in told["error"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "JSON"),
        ({"inputs": 3}, "inputs"),
        ({"inputs": {}, "tmeout": 3}, "tmeout"),
        ({"inputs": {}, "timeout_ms": "soon"}, "timeout_ms"),
        ({"inputs": {"x": {"dtype": "float3", "data": []}}}, "inputs.x"),
        ([], "object"),
        (b'{"inputs": {"x": 1}, "key": "\\ud800"}', "the key"),
        (b'{"inputs": {"x": 1}, "id": "\\ud800"}', "x-client-id"),
        (b'{"inputs": {"x": "\\ud800"}}', "surrogates"),
        (b'{"inputs": {"\\ud800": 1}}', "surrogates"),
    ],
)
def test_bad_input_names_the_place(gateway, body, says):
    status, told = gateway.predict(body)
    assert status == 400
    assert says in told["error"]


def test_many_queries_come_back_as_events(gateway):
    queries = [{"inputs": {"x": n}} for n in range(20)] + [{"inputs": {"why": "boom"}}, 7]
    status, headers, body = gateway.ask(f"/v1/pipelines/{gateway.name}/predict", {"queries": queries})
    assert (status, headers["Content-Type"]) == (200, "text/event-stream")
    *events, last = [event for event in body.decode().split("\n\n") if event]
    assert last.startswith("event: end")
    told = {each["index"]: each for each in (json.loads(event.removeprefix("data: ")) for event in events)}
    assert {n: told[n]["outputs"]["twice"] for n in range(20)} == {n: 2 * n for n in range(20)}
    assert (told[20]["status"], told[21]["status"]) == (500, 400)


def test_open_inference_protocol(gateway):
    for path in ("/v2/health/live", "/v2/health/ready", f"/v2/models/{gateway.name}/ready"):
        assert gateway.ask(path)[0] == 200
    metadata = json.loads(gateway.ask(f"/v2/models/{gateway.name}")[2])
    assert [each["name"] for each in metadata["outputs"]] == ["said", "twice"]
    told = {"id": "7", "inputs": [text_tensor("name", "Ada")], "outputs": [{"name": "said"}]}
    (version,) = metadata["versions"]
    for where in ("", f"/versions/{version}"):
        status, _, body = gateway.infer(told, version=where)
        answer = json.loads(body)
        assert (status, answer["id"], answer["model_version"]) == (200, "7", version)
        assert answer["outputs"] == [text_tensor("said", "Hello, Ada!")]
        assert answer["parameters"]["request_id"] != "7"
    assert gateway.infer(told, version="/versions/2")[0] == 404
    assert gateway.infer({**told, "outputs": [{"name": "sad"}]})[0] == 400
    assert gateway.ask("/v2/models/nobody/infer", told)[0] == 404
    for path in ("/v2/models/stats", f"/v2/models/{gateway.name}/config", "/v2/repository/index"):
        status, _, body = gateway.ask(path)
        assert (status, "Spillway has no" in json.loads(body)["error"]) == (404, True)


def test_binary_tensors(gateway):
    numbers = struct.pack("<3f", 1, 2, 3)
    tensor = {"name": "x", "datatype": "FP32", "shape": [3], "parameters": {"binary_data_size": 12}}
    text = json.dumps(
        {"inputs": [tensor], "outputs": [{"name": "twice", "parameters": {"binary_data": True}}]}
    ).encode()
    headers = {"Inference-Header-Content-Length": str(len(text)), "Content-Type": "application/octet-stream"}
    status, headers, body = gateway.infer(text + numbers, headers.items())
    assert status == 200, body
    assert struct.unpack("<3f", body[int(headers["Inference-Header-Content-Length"]) :]) == (2, 4, 6)


def test_fifty_clients_that_all_count_from_one(gateway):
    def run(client):
        told = []
        for number in range(1, 6):
            x = 1000 * client + number
            body = {"id": str(number), "inputs": [{"name": "x", "datatype": "INT64", "shape": [], "data": [x]}]}
            status, _, answer = gateway.infer(body)
            answer = json.loads(answer)
            (twice,) = [each["data"][0] for each in answer["outputs"] if each["name"] == "twice"]
            told.append((status, answer["id"], twice == 2 * x))
        return told

    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        for told in pool.map(run, range(50)):
            assert told == [(200, str(number), True) for number in range(1, 6)]


def test_an_idempotency_key_makes_repetitions_one_query(gateway, broker):
    body = {"inputs": {"seconds": 0.3, "name": "once"}}
    headers = {"Idempotency-Key": "order-4711"}
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        told = list(pool.map(lambda _: gateway.predict(body, **headers), range(4)))
    assert {(status, answer["request_id"]) for status, answer in told} == {(200, told[0][1]["request_id"])}
    ids = [each.request_id for each in read_egress(broker, egress(gateway.name), "said")]
    assert ids.count(told[0][1]["request_id"]) == 1
    assert len(set(ids)) == len(ids)
    assert gateway.predict(body, **{"Idempotency-Key": "ä" * 3})[0] == 400


def test_queries_of_one_call_have_idempotency_keys_of_their_own_however_long(gateway):
    def asked(key):
        body = {"queries": [{"inputs": {"x": n}} for n in range(3)]}
        path = f"/v1/pipelines/{gateway.name}/predict"
        _, _, text = gateway.ask(path, body, [("Idempotency-Key", key)])
        events = [json.loads(event.removeprefix("data: ")) for event in text.decode().split("\n\n")[:3]]
        assert {each["status"] for each in events} == {200}
        return {each["request_id"] for each in events}

    assert len(asked("a" + "x" * 127) | asked("b" + "x" * 127)) == 6


def test_what_a_web_page_could_have_a_browser_send_is_refused(gateway):
    path = f"/v1/pipelines/{gateway.name}/predict"
    assert gateway.ask(path, {"inputs": {}}, [("Host", "evil.example")])[0] == 403
    assert gateway.ask(path, b'{"inputs": {}}', [("Content-Type", "text/plain")])[0] == 415
    assert gateway.ask(path, None, [("Origin", "http://evil.example")], "OPTIONS")[0] == 405
    assert gateway.ask("/nowhere")[0] == 404


def test_the_page_knows_of_a_failure_and_what_became_of_it(gateway):
    status, headers, _ = gateway.ask("/")
    assert (status, headers["Content-Security-Policy"][:18]) == (200, "default-src 'none'")
    why = "<script>alert(1)</script>"
    request_id = gateway.predict({"inputs": {"why": why}})[1]["request_id"]

    def known():
        return json.loads(gateway.ask("/v1/status")[2])["pipelines"][gateway.name]

    until(lambda: known()["recent"][:1] and known()["recent"][0]["request_id"] == request_id, 60, "the gate tells")
    told = known()
    assert why in told["recent"][0]["text"]
    assert set(told["stages"]) == {"act", "gate"}
    assert told["outcomes"]["failed"]["model-raised"] >= 1
    status, _, body = gateway.ask(f"/v1/pipelines/{gateway.name}/queries/{request_id}")
    assert (status, json.loads(body)["state"], json.loads(body)["reason"]) == (200, "answered", "model-raised")


def test_openapi_names_the_pipeline(gateway):
    told = json.loads(gateway.ask("/openapi.json")[2])
    assert f"/v2/models/{gateway.name}/infer" in told["paths"]


def test_tokens_grpc_beside_http_drain_and_the_command(gateway, project, broker):
    where = ["pipeline.yaml", "--bootstrap", broker, "--run-dir", "run2", "--replica", "1"]
    refused = command("gateway", *where, "--http", "0.0.0.0:0", cwd=project)
    assert (refused.returncode, "--tokens" in refused.stderr) == (2, True)
    listening = [SPILLWAY, "gateway", *where, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--tokens", "tokens"]
    with subprocess.Popen(listening, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=project) as run:
        said = "".join(lines_to(run.stdout, "http://"))
        other = Gateway(int(said.rpartition("http://")[2].rpartition(":")[2]), gateway.name)
        assert other.ask("/v2/health/ready")[0] == 200
        status, headers, _ = other.ask(f"/v2/models/{gateway.name}")
        assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
        assert (
            other.predict({"inputs": {}}, Authorization="Bearer another-token-of-many")[0] == 404
        )  # it is not its own
        assert other.predict({"inputs": {"name": "Ada"}}, **BEARER)[0] == 200
        answers_grpc(gateway.name, said.partition("gRPC at port ")[2].split()[0])
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(other.predict, {"inputs": {"seconds": 1.5, "name": "last"}}, **BEARER)
            until(lambda: under_way(other), 20, "the query is under way")
            run.terminate()
            assert answer.result()[1]["outputs"]["said"] == "Hello, last!"
        assert run.wait(30) == 0


def answers_grpc(name, port):
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        infer = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelInferResponse.FromString,
        )
        team = [("authorization", BEARER["Authorization"])]
        query = pb.ModelInferRequest(model_name=name, id="7")
        query.inputs.add(name="name", datatype="BYTES", shape=[1]).contents.bytes_contents.append(b"Ada")
        query.outputs.add(name="said")
        answer = infer(query, timeout=20, metadata=team)
        assert (answer.id, list(answer.raw_output_contents)) == ("7", [b"\x0b\0\0\0Hello, Ada!"])
        for asked, metadata, code in (
            (query, [], grpc.StatusCode.UNAUTHENTICATED),
            (pb.ModelInferRequest(model_name="nobody"), team, grpc.StatusCode.NOT_FOUND),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                infer(asked, timeout=20, metadata=metadata)
            assert refused.value.code() is code


def under_way(gateway):
    text = gateway.ask("/metrics", headers=BEARER.items())[2].decode()
    return any(
        line.startswith("spillway_gateway_requests_under_way{") and line.endswith(" 1.0") for line in text.split("\n")
    )


def lines_to(stream, mark):
    for line in stream:
        yield line
        if mark in line:
            return


@pytest.mark.nightly
def test_tritons_own_client(gateway, project, broker, tmp_path):
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", "tritonclient[http,grpc]==2.73.0"], check=True)
    command = [SPILLWAY, "gateway", "pipeline.yaml", "--bootstrap", broker, "--run-dir", "run4", "--replica", "3"]
    listening = [*command, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
    with subprocess.Popen(listening, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=project) as run:
        said = "".join(lines_to(run.stdout, "http://"))
        addresses = [
            said.rpartition("http://")[2].strip(),
            f"127.0.0.1:{said.partition('gRPC at port ')[2].split()[0]}",
        ]
        asked = [python, Path(__file__).with_name("foreign_client.py"), *addresses, gateway.name]
        done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=120)
        run.terminate()
        assert run.wait(30) == 0
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    alike = {"live": True, "said": "Hello, Ada!", "twice": [2, 4, 6]}
    assert told == {
        "http": {**alike, "refused": ["404", "404"]},
        "grpc": {**alike, "refused": ["StatusCode.NOT_FOUND", "StatusCode.UNIMPLEMENTED"]},
        "json": "Hello, Bob!",
    }
