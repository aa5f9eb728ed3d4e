"""Hostile requests by the thousand, while good ones are asked beside them: are these answered, at what memory?"""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from benchmarks.gateway.replicas import NAME, asked, plain, scene, v2
from benchmarks.output import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.gateway.replicas import Replica

MOST_BYTES: Final = 50 << 20  # that the gateway may grow by
_AT_A_TIME: Final = 32
_SLOW: Final = 1_200  # connections that stall, besides: more than the gateway keeps
_GOOD_RATE: Final = 20.0
_WARM: Final = 200
_PATIENCE: Final = 90.0  # seconds; a body has thirty
_INFER: Final = v2(0)[0]
_PREDICT: Final = plain(0)[0]
_BOMB: Final = gzip.compress(bytes(64 << 20))
_NESTED_BOMB: Final = gzip.compress(b"[" * (8 << 20))
_HELLO: Final = b"\x16\x03\x01\x02"  # as TLS begins
_LENGTHS: Final = (1 << 31, 1 << 40, 1 << 62, 10**30, -1, 10**4000)
_WIDE: Final = (
    b'{"inputs":{"x":[' + b'"ab",' * 190_000 + b'"ab"]}}',
    json.dumps({"inputs": {"x": [1.5] * 150_000}}).encode(),
    b'{"inputs":{"x":' + b"9" * 900_000 + b"}}",
)


def _request(path: str, body: bytes, *headers: str, method: str = "POST", declared: int | None = None) -> bytes:
    length = len(body) if declared is None else declared
    told = ["Host: localhost", f"Content-Length: {length}", *headers]
    if not any(header.startswith("Content-Type") for header in headers):
        told.append("Content-Type: application/json")
    return f"{method} {path} HTTP/1.1\r\n".encode() + "\r\n".join(told).encode("latin-1") + b"\r\n\r\n" + body


def _bad_json(dice: random.Random) -> bytes:
    good = json.dumps(plain(dice.randrange(99))[1]).encode()
    damaged = bytearray(good)
    for _ in range(dice.randint(1, 4)):
        damaged[dice.randrange(len(damaged))] = dice.randrange(256)
    text = dice.choice(
        [bytes(damaged), good[: dice.randrange(len(good))], dice.randbytes(200), b"[]", b"null", b"1e999"]
    )
    return _request(dice.choice((_PREDICT, _INFER)), text)


def _wrong_type(dice: random.Random) -> bytes:
    kind = dice.choice(("text/plain", "multipart/form-data; boundary=x", "application/xml", "", "a" * 4000, "\xff;=;"))
    return _request(_PREDICT, json.dumps(plain(1)[1]).encode(), f"Content-Type: {kind}")


def _deep(dice: random.Random) -> bytes:
    depth = dice.choice((20, 900, 5_000, 400_000))
    opened, closed = dice.choice(((b"[", b"]"), (b'{"a":', b"}")))
    depth = min(depth, 900_000 // (len(opened) + 1))
    return _request(_PREDICT, b'{"inputs":{"x":' + opened * depth + b"1" + closed * depth + b"}}")


def _bomb(dice: random.Random) -> bytes:
    packed = dice.choice((_BOMB, _NESTED_BOMB, _BOMB[:500], b"\x1f\x8b" + dice.randbytes(300)))
    return _request(
        _PREDICT, packed, f"Content-Encoding: {dice.choice(('gzip', 'gzip', 'deflate', 'br', 'zstd', 'x'))}"
    )


def _binary_length(dice: random.Random) -> bytes:
    size = dice.choice((-1, 7, 1 << 40, "x", 1.5, True, None))
    tensor = {"name": "x", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": size}}
    text = json.dumps({"inputs": [tensor]}).encode()
    length = dice.choice((0, 3, len(text), len(text) + 9, "-1", "9" * 4000, "٣".encode().decode("latin-1")))
    kind = "Content-Type: application/octet-stream"
    return _request(_INFER, text + bytes(8), kind, f"Inference-Header-Content-Length: {length}")


def _shapes(dice: random.Random) -> bytes:
    shape = dice.choice(([1 << 62] * 8, [0, 1 << 40], [1] * 400, [-1], [10**400], ["2"], 7, [[1]]))
    tensor = {"name": "x", "datatype": dice.choice(("FP64", "BYTES", "BF16", "é", 5)), "shape": shape, "data": [1]}
    return _request(_INFER, json.dumps({"inputs": [tensor] * dice.choice((1, 500))}).encode())


def _headers(dice: random.Random) -> bytes:
    odd = dice.choice(
        (
            [f"X-{n}: {n}" for n in range(500)],
            ["X-Long: " + "a" * 100_000],
            ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
            ["Idempotency-Key: " + "k" * 5_000],
            ["traceparent: " + "0-" * 2_000, "x-request-id: \x01\xff"],
            ["Expect: 100-continue", "Expect: nothing"],
            ["Content-Length: 3"],
            ["Upgrade: websocket", "Connection: Upgrade"],
            [" folded", "no colon at all", ": nothing"],
        )
    )
    return _request(_PREDICT, b'{"inputs":{}}', *odd)


def _paths(dice: random.Random) -> bytes:
    path = dice.choice(
        (
            "/../../etc/passwd",
            f"/v1/pipelines/{NAME}%2f..%2fx/predict",
            "/v2/models/" + "%00" * 500 + "/infer",
            "//" * 2_000,
            "/v2/models/" + "a" * 7_000 + "/infer",
            "http://elsewhere.example/v2",
            "*",
            "/%ff%fe%zz",
            "/page/..%2f..%2fserver.py",
            "",
        )
    )
    return _request(
        path, b"{}", method=dice.choice(("POST", "GET", "OPTIONS", "CONNECT", "DELETE", "G@T", "A" * 9_000))
    )


def _smuggled(dice: random.Random) -> bytes:
    size = dice.choice(("ffffffffffffffff", "-1", "zz", "5;" + "x" * 20_000, "0"))
    head = _request(_PREDICT, b"", "Transfer-Encoding: chunked").replace(b"Content-Length: 0\r\n", b"")
    return head + size.encode() + b"\r\n12345\r\n0\r\n\r\n" + b"GET /v2 HTTP/1.1\r\n\r\n" * dice.choice((0, 1, 2_000))


KINDS: Final[dict[str, Callable[[random.Random], bytes]]] = {
    "bad JSON": _bad_json,
    "wrong content types": _wrong_type,
    "huge declared lengths": lambda dice: _request(_PREDICT, b'{"inputs"', declared=dice.choice(_LENGTHS)),
    "oversized bodies": lambda dice: _request(dice.choice((_PREDICT, _INFER)), b" " * (2 << 20)),
    "deep nesting": _deep,
    "wide JSON": lambda dice: _request(_PREDICT, dice.choice(_WIDE)),
    "gzip bombs": _bomb,
    "bad binary lengths": _binary_length,
    "absurd shapes": _shapes,
    "absurd headers": _headers,
    "path tricks": _paths,
    "garbage": lambda dice: dice.choice((dice.randbytes(2_000), _HELLO + dice.randbytes(500), b"\r\n" * 3_000, b"")),
    "chunks and pipelining": _smuggled,
}
_HALF_CLOSED: Final = frozenset({"huge declared lengths", "garbage", "chunks and pipelining"})  # they would wait
_RARE: Final = {"oversized bodies": 0.2, "deep nesting": 0.2, "wide JSON": 0.1, "gzip bombs": 0.2}  # the gateway works


async def _strike(port: int, kind: str, dice: random.Random) -> str:
    """Send one hostile request on a connection of its own; return the status that comes, or what does instead."""
    try:
        async with asyncio.timeout(_PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                with suppress(ConnectionError):
                    writer.write(KINDS[kind](dice))
                    if dice.random() < 0.1:
                        return "left"
                    await writer.drain()
                    if kind in _HALF_CLOSED or dice.random() < 0.1:
                        writer.write_eof()
                line = await reader.readline()
            finally:
                writer.transport.abort()
    except TimeoutError:
        return "no answer"
    except (OSError, ValueError):  # reset, or a line without an end
        return "closed"
    return line.split()[1].decode("ascii", "replace")[:3] if line.startswith(b"HTTP/1.") else "closed"


async def _stall(port: int, number: int, stop: asyncio.Event) -> None:
    """Hold connections that say nothing, a part of the headers, or a body byte by byte, each till it is closed."""
    head = _request(_PREDICT, b'{"inputs"', declared=100_000)
    said = (b"", head[:40], head)[number % 3]
    while not stop.is_set():
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(said)
            while not stop.is_set() and not reader.at_eof() and not writer.is_closing():
                if number % 3 == 2:
                    writer.write(b" ")
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1 << 12), 1.0)
            writer.transport.abort()


async def _run(replica: Replica, count: int, seed: int) -> dict[str, Any]:
    weights = [_RARE.get(kind, 1.0) for kind in KINDS]
    kinds = iter(random.Random(seed).choices(list(KINDS), weights, k=count))
    codes: Counter[tuple[str, str]] = Counter()
    good: Counter[str] = Counter()
    took: list[float] = []
    stop = asyncio.Event()

    async def strike(number: int) -> None:
        dice = random.Random(seed * 1_000 + number)
        for kind in kinds:
            codes[kind, await _strike(replica.port, kind, dice)] += 1

    async def ask(session: aiohttp.ClientSession) -> None:
        number = 0
        while not stop.is_set():
            began = time.monotonic()
            good[await asked(session, replica, number)] += 1
            took.append(time.monotonic() - began)
            number += 1
            await asyncio.sleep(max(0.0, 1 / _GOOD_RATE - took[-1]))

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_PATIENCE)) as session:
        for number in range(_WARM):
            await asked(session, replica, number)
        before, began = replica.memory("VmRSS"), time.monotonic()
        async with asyncio.TaskGroup() as beside:
            beside.create_task(ask(session))
            for number in range(_SLOW):
                beside.create_task(_stall(replica.port, number, stop))
            async with asyncio.TaskGroup() as strikes:
                for number in range(_AT_A_TIME):
                    strikes.create_task(strike(number))
            stop.set()
    return {
        "hostile": count,
        "seconds": time.monotonic() - began,
        "codes": [{"kind": kind, "code": code, "count": n} for (kind, code), n in sorted(codes.items())],
        "good": dict(good),
        "good_p99_ms": sorted(took)[int(0.99 * len(took))] * 1e3,
        "memory_before": before,
        "memory_most": replica.memory("VmHWM"),
    }


def measure(count: int, seed: int = 0) -> dict[str, Any]:
    with scene(1) as served:
        result = asyncio.run(_run(served.replicas[0], count, seed))
        result["log"] = [
            line for line in served.replicas[0].log().splitlines() if "Traceback" in line or " failed" in line
        ]
    return result


def broken(result: dict[str, Any]) -> list[str]:
    """Return what is not as promised."""
    grown = result["memory_most"] - result["memory_before"]
    found = [f"of the good requests {n} came back as {code}" for code, n in result["good"].items() if code != "200"]
    if not result["good"].get("200"):
        found.append("no good request was answered")
    if grown > MOST_BYTES:
        found.append(f"the gateway grew by {grown >> 20} MiB")
    unlike = [each for each in result["codes"] if each["code"] == "no answer" or each["code"].startswith("5")]
    found += [f"{each['count']} of {each['kind']}: {each['code']}" for each in unlike]
    return found + [f"the gateway's log has: {line:.200}" for line in result["log"][:5]]


def table(result: dict[str, Any]) -> Table:
    columns = list(dict.fromkeys(each["code"] for each in result["codes"]))
    counts = {(each["kind"], each["code"]): str(each["count"]) for each in result["codes"]}
    rows = [[kind, *(counts.get((kind, code), "") for code in columns)] for kind in KINDS]
    grown = (result["memory_most"] - result["memory_before"]) / (1 << 20)
    good = ", ".join(f"{n} {code}" for code, n in sorted(result["good"].items()))
    notes = (
        f"Beside them {_SLOW} stalled connections, and good requests: {good}; p99 {result['good_p99_ms']:.0f} ms.",
        f"The gateway's memory at most {grown:+.0f} MiB over what it had before.",
    )
    return Table(f"{result['hostile']} hostile requests in {result['seconds']:.0f} s", ("", *columns), rows, notes)
