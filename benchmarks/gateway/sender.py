"""Queries at Poisson times, by `Client` or the gateway, and what they took."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import numpy as np
import psutil

from benchmarks.gateway.replicas import NAME, plain, read_answer, v2
from benchmarks.scene import cpu_of
from spillway.lineage.errors import SpillwayError
from spillway.producers.client.blocking import Client
from spillway.producers.connection import ClientSettings
from spillway.producers.load.schedule import poisson

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from concurrent.futures import Future
    from contextlib import AbstractAsyncContextManager

    from spillway.lineage.message import Outcome

    Ask = Callable[[], Awaitable[None]]

CLIENT, PLAIN, V2, BY_GRPC = "Client", "plain JSON", "v2", "gRPC"
FORMS: Final = {PLAIN: plain, V2: v2}
_WARM: Final = 100


def by_client(bootstrap: str, due: Sequence[float], meter: Meter) -> list[float]:
    took: list[float] = []

    def ended(at: float, future: Future[Outcome]) -> None:
        took.append(time.perf_counter() - at)
        check(future.result().outputs["twice"], 2.0)

    with Client(NAME, ClientSettings(bootstrap=bootstrap), slo=20) as client:
        for _ in range(_WARM):
            client.predict({"x": 1})
        meter.start()
        began, futures = time.perf_counter(), []
        for after in due:
            time.sleep(max(0.0, began + after - time.perf_counter()))
            futures.append(client.submit({"x": 1}))
            futures[-1].add_done_callback(partial(ended, began + after))
        for future in futures:
            future.result()
        meter.stop()
    return took


@asynccontextmanager
async def http(kind: str, url: str) -> AsyncIterator[Ask]:
    """Ask by HTTP, on connections that are kept."""
    path, body = FORMS[kind](1)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def ask() -> None:
            async with session.post(url + path, json=body) as answer:
                check(read_answer(await answer.json()), 2)

        yield ask


@asynccontextmanager
async def grpc(address: str) -> AsyncIterator[Ask]:
    """Ask by gRPC, on one channel."""
    import grpc  # noqa: PLC0415 - an extra

    from spillway.agents.gateway.protocol import inference_pb2 as pb  # noqa: PLC0415 - the same

    request = pb.ModelInferRequest(model_name=NAME, raw_input_contents=[(1).to_bytes(8, "little")])
    request.inputs.add(name="x", datatype="INT64")
    async with grpc.aio.insecure_channel(address) as channel:
        infer = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelInferResponse.FromString,
        )

        async def ask() -> None:
            answer = await infer(request)
            check(int.from_bytes(answer.raw_output_contents[0], "little"), 2)

        yield ask


async def by_gateway(asking: AbstractAsyncContextManager[Ask], due: Sequence[float], meter: Meter) -> list[float]:
    async def timed(at: float) -> float:
        await ask()
        return time.perf_counter() - at

    async with asking as ask:
        for _ in range(_WARM):
            await ask()
        meter.start()
        began, tasks = time.perf_counter(), []
        for after in due:
            await asyncio.sleep(max(0.0, began + after - time.perf_counter()))
            tasks.append(asyncio.create_task(timed(began + after)))
        took = list(await asyncio.gather(*tasks))
        meter.stop()
    return took


def check(got: Any, wanted: float) -> None:
    if got != wanted:
        raise SpillwayError(f"the answer is {got!r}, not {wanted}")


class Meter:
    """Counts the processor time of a process between two moments."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid or None)
        self.seconds = 0.0

    def start(self) -> None:
        self.seconds = -cpu_of(self._process)

    def stop(self) -> None:
        self.seconds += cpu_of(self._process)


def sent(kind: str, address: str, pid: int, rate: float, seconds: float, seed: int) -> dict[str, float]:
    """Send; the processor time is that of process `pid`, or of this one where that is 0."""
    due = poisson(rate, seconds, np.random.default_rng(seed)).tolist()
    meter = Meter(pid)
    if kind == CLIENT:
        took = by_client(address, due, meter)
    else:
        took = asyncio.run(by_gateway(grpc(address) if kind == BY_GRPC else http(kind, address), due, meter))
    p50, p99 = np.quantile(took, (0.5, 0.99)) * 1e3
    return {"p50": float(p50), "p99": float(p99), "cpu": meter.seconds * 1e3 / len(due)}
