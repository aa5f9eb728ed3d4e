"""The gateway's page: what it may load and tell to whom, and what became of a query."""

import asyncio
import json
import time
from contextlib import asynccontextmanager

from aiohttp.test_utils import TestClient, TestServer

from spillway.agents.gateway import page as module
from spillway.agents.gateway.asking import Pipelines
from spillway.agents.gateway.feedback import Signer
from spillway.agents.gateway.receiving import Room
from spillway.agents.gateway.rest import CALLER
from spillway.agents.gateway.security import Caller, Gatekeeper, read_tokens
from spillway.agents.gateway.server import HttpFront
from spillway.agents.live.operator.inspection import Search
from spillway.lineage.errors import BrokerError
from spillway.producers.connection import ClientSettings
from spillway.topology.load import Pipeline

EVIL = "<script>document.title = 'taken'</script><img src=x onerror=\"document.title = 'taken'\">"
NOW = time.time()
EVIL_ID = "<script>alert(1)</script>"
TOKENS = "all-of-them-1234567 everybody\nonly-of-one-1234567 one flowers\n"
ALL, ONE = ({"Authorization": f"Bearer {line.split()[0]}"} for line in TOKENS.splitlines())


def a_pipeline(name):
    stages = "".join(
        f"  - {{name: {stage}, emulated: {{beta: 1ms}}{after}}}\n"
        for stage, after in {
            "decode": "", "left": ", after: [decode]", "right": ", after: [decode]", "rank": ", after: [left, right]",
        }.items()
    )  # fmt: skip
    return Pipeline.parse(f"name: {name}\nslo: 500ms\nstages:\n{stages}")


def a_stage(**more):
    known = {
        "processes": 2, "rate": 150.25, "queue": 3, "queue_limit": 64, "batch": 4.5, "latency": 0.012, "drops": 0.0,
        "dropped": 0, "workers": 2, "wanted": 2, "orders": [], "versions": {"v1": 2},
    }  # fmt: skip
    return known | more


def gathered():
    stages = {name: a_stage() for name in ("decode", "left", "rank", "gate")}
    stages["right"] = a_stage(drops=2.0, dropped=17, workers=1, orders=[f"me, 12:00:00: {EVIL}"])
    drop = {"at": NOW, "request_id": EVIL_ID, "kind": "failed", "reason": "model-raised", "stage": "rank"}
    known = {
        "policies": "pard", "kafka": None, "unanswered_seconds": 0.0, "flapping": [], "unseen": ["rank.7"],
        "learners": [], "stages": stages, "outcomes": {"prediction": {"": 9}, "failed": {"model-raised": 1}},
        "goodput": 149.5, "latency": 0.03, "latency_p99": 0.09, "recent": [drop | {"text": EVIL}], "states": {},
        "variants": [], "processes": {"decode.0": {"state": "gone"}},
    }  # fmt: skip
    return {"pipelines": {"flowers": known, "birds": known}}


@asynccontextmanager
async def a_gateway(tmp_path, *, tokens=True):
    file = tmp_path / "tokens"
    file.write_text(TOKENS)
    settings = ClientSettings(bootstrap="127.0.0.1:1")
    pipelines = [a_pipeline("flowers"), a_pipeline("birds")]
    gatekeeper = Gatekeeper(read_tokens(file) if tokens else None, "127.0.0.1")
    front = HttpFront(Pipelines(pipelines, settings), gatekeeper, Signer(b"x" * 32), Room(), [])
    module.Page(gathered, pipelines, settings).add(front.app)
    async with TestClient(TestServer(front.app)) as client:
        yield client


def gateway_test(function):
    def run(tmp_path, monkeypatch):
        async def play():
            async with asyncio.timeout(120), a_gateway(tmp_path) as client:
                await function(client, monkeypatch)

        asyncio.run(play())

    run.__name__ = function.__name__
    return run


@gateway_test
async def test_the_page_loads_nothing_but_its_own_and_runs_nothing_inline(client, monkeypatch):
    for path, kind in {"/": "text/html", "/page/page.css": "text/css", "/page/page.js": "text/javascript"}.items():
        answer = await client.get(path)
        policy = answer.headers["Content-Security-Policy"]
        assert (answer.status, answer.content_type, answer.headers["X-Content-Type-Options"]) == (200, kind, "nosniff")
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")
        assert "unsafe" not in policy
        text = await answer.text()
        assert not any(word in text for word in ("style=", "onclick", "innerHTML", "<style", "http://127", "eval("))
        assert text.count("<script") == text.count("<script src=")


@gateway_test
async def test_a_caller_sees_its_own_pipelines_and_who_has_no_token_none(client, monkeypatch):
    for path in ("/v1/status", "/v1/status/stream", "/v1/pipelines/flowers/queries/q"):
        assert (await client.get(path)).status == 401
    everything = await (await client.get("/v1/status", headers=ALL)).json()
    assert list(everything["pipelines"]) == ["flowers", "birds"]
    flowers = everything["pipelines"]["flowers"]
    assert flowers["graph"] == {"decode": [], "left": ["decode"], "right": ["decode"], "rank": ["left", "right"]}
    assert (flowers["slo"], flowers["stages"]["right"]["dropped"], flowers["learns_for"]) == (0.5, 17, None)
    assert [(point["goodput"], point["latency_p99"]) for point in flowers["history"]] == [(149.5, 0.09)]
    answer = await client.get("/v1/status", headers=ONE)
    assert "birds" not in await answer.text()
    answer = await client.get("/v1/pipelines/birds/queries/q", headers=ONE)
    assert (answer.status, (await answer.json())["error"]) == (404, "there is no pipeline 'birds' here")


def test_who_sees_a_pipeline_sees_its_learners():
    async def play(allowed):
        page = module.Page(gathered, [Pipeline.load("examples/velox/songs.yaml"), a_pipeline("birds")], None)
        return page._seen_by({CALLER: Caller("one", allowed)})

    assert asyncio.run(play(frozenset({"songs"}))) == ["songs", "songs-taste"]
    assert asyncio.run(play(frozenset({"birds", "songs-taste"}))) == ["birds"]
    assert asyncio.run(play(None)) == ["songs", "songs-taste", "birds"]


@gateway_test
async def test_the_stream_has_events_and_each_point_once(client, monkeypatch):
    monkeypatch.setattr(module, "PERIOD", 0.01)
    answer = await client.get("/v1/status/stream", headers=ONE)
    assert answer.content_type == "text/event-stream"
    events = [await answer.content.readuntil(b"\n\n") for _ in range(3)]
    told = [json.loads(event.removeprefix(b"data: ")) for event in events]
    points = [point["at"] for each in told for point in each["pipelines"]["flowers"]["history"]]
    assert len(points) == len(set(points)) == 3
    assert all(list(each["pipelines"]) == ["flowers"] for each in told)
    answer.close()


@gateway_test
async def test_viewers_are_bounded(client, monkeypatch):
    monkeypatch.setattr(module, "VIEWERS", 1)
    first = await client.get("/v1/status/stream", headers=ONE)
    assert (await client.get("/v1/status/stream", headers=ALL)).status == 429
    first.close()


@gateway_test
async def test_a_query_is_searched_for_and_told(client, monkeypatch):
    asked = []

    def search(_settings, spec, request_id, *, at, key):
        asked.append((spec.name, request_id, at, key))
        if request_id == "gone":
            raise BrokerError("Kafka is away")
        return Search(request_id, at, 60.0, 0)

    monkeypatch.setattr(module, "search", search)
    told = await (await client.get("/v1/pipelines/flowers/queries/%3Cb%3E?at=5&key=k", headers=ONE)).json()
    assert (told["request_id"], told["state"], told["pipeline"]) == ("<b>", "not-found", "flowers")
    for path, status in {"gone": 503, "a%20b": 400, "q?at=soon": 400, "q?at=nan": 400}.items():
        answer = await client.get(f"/v1/pipelines/flowers/queries/{path}", headers=ONE)
        assert (answer.status, list(await answer.json())) == (status, ["error"])
    assert asked == [("flowers", "<b>", 5.0, "k"), ("flowers", "gone", None, None)]
