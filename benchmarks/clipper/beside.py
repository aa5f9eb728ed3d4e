"""The same model in a bare loop, in a served stage's thread and process, and in MLServer.

MLServer has an interpreter of its own and speaks JSON over HTTP; a served stage is asked over Kafka.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import psutil

from benchmarks.clipper.models import images, predictor
from benchmarks.clipper.served import RATE, one
from benchmarks.output import MISSING, Table, median_spread
from benchmarks.scene import apart, ended, started
from benchmarks.steady import until
from spillway.agents.broker.ports import free_port
from spillway.lineage.errors import SpillwayError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway.producers.connection import ClientSettings

_BATCH: Final = 64
_CONNECTIONS: Final = 64
_DRAINED: Final = {"linear SVM": 6_000, "kernel SVM": 2_000}  # queries
_ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Run:
    """What one system did. NaN where it has no such thing. Times in ms, memory in MB."""

    rate: float
    p50: float = float("nan")
    p99: float = float("nan")
    memory: float = float("nan")
    predict: float = float("nan")
    queue: float = float("nan")
    rest: float = float("nan")
    gap: float = float("nan")


def bare(model: str, seconds: float) -> Run:
    """Run full batches one after the other; in a process of its own, for its memory."""
    predict, rows = predictor(model), list(images()[0][:_BATCH])
    predict(rows)
    took: list[float] = []
    while sum(took) < seconds:
        began = time.perf_counter()
        predict(rows)
        took.append(time.perf_counter() - began)
    predict_ms = 1e3 * float(np.median(took))
    memory = psutil.Process().memory_info().rss / 1e6
    return Run(_BATCH * len(took) / sum(took), memory=memory, predict=predict_ms, gap=0.0)


def stage(folder: Path, settings: ClientSettings, model: str, where: str, repeat: int, seconds: float) -> Run:
    """A served stage: latencies at 150/s, then all queries at once."""
    rows = images()[0]

    def payload(index: int, _chance: Any) -> dict[str, Any]:
        return {"x": rows[index % len(rows)]}

    name = f"beside-{where}-{model[0]}-{repeat}"
    what = {"model": "Kernel" if model == "kernel SVM" else "Linear", "where": where}
    paced = one(folder, settings, name, payload, seconds=seconds, **what)
    at_once = one(folder, settings, f"{name}-all", payload, seconds=_DRAINED[model] / 1e6, rate=1e6, **what)
    stage = paced.stage
    predict, queue = 1e3 * stage.executed, 1e3 * (stage.queued + stage.waited)
    gap = 1e3 * (_DRAINED[model] / at_once.rate - at_once.evaluated) / at_once.stage.batches
    return Run(at_once.rate, paced.p50, paced.p99, at_once.memory, predict, queue, paced.mean - predict - queue, gap)


# MLServer ------------------------------------------------------------------------------------------------------


@contextmanager
def _serving(python: Path, folder: Path, model: str) -> Iterator[tuple[int, psutil.Process]]:
    """Start MLServer with the model in its own process, batching adaptively; its port and its process."""
    folder.mkdir()
    port = free_port()
    told = {"http_port": port, "grpc_port": free_port(), "metrics_port": free_port(), "parallel_workers": 0}
    (folder / "settings.json").write_text(json.dumps({"host": "127.0.0.1", "debug": False, **told}))
    of = {
        "name": "digits", "implementation": "benchmarks.clipper.peer.Digits", "max_batch_size": _BATCH,
        "max_batch_time": 0.002, "parameters": {"extra": {"of": json.dumps(model)}},
    }  # fmt: skip
    (folder / "model-settings.json").write_text(json.dumps(of))
    command = [str(python.absolute().parent / "mlserver"), "start", str(folder)]
    process = started(command, folder, folder / "log", PYTHONPATH=str(_ROOT))
    try:
        until(lambda: asyncio.run(_status(port)) == b"200", f"MLServer is ready; see {folder / 'log'}")
        yield port, psutil.Process(process.pid)
    finally:
        ended(process)


async def _status(port: int) -> bytes:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return b""
    writer.write(b"GET /v2/models/digits/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer[9:12]


def _requests() -> list[bytes]:
    made = []
    for row in images()[0][:1_000]:
        data = np.round(row, 3).tolist()
        body = json.dumps({"inputs": [{"name": "x", "shape": [1, 784], "datatype": "FP32", "data": data}]}).encode()
        head = "POST /v2/models/digits/infer HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        made.append(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return made


class _Asking:
    """Connections to MLServer, each of which has one request at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._requests = _requests()
        self._free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()

    async def begin(self) -> None:
        for _ in range(_CONNECTIONS):
            self._free.put_nowait(await asyncio.open_connection("127.0.0.1", self._port))

    async def ask(self, number: int) -> float:
        """Ask once, as soon as a connection is free; when it is answered."""
        reader, writer = await self._free.get()
        writer.write(self._requests[number % len(self._requests)])
        head = await reader.readuntil(b"\r\n\r\n")
        (length,) = (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        body = await reader.readexactly(length)
        if not head.startswith(b"HTTP/1.1 200"):
            raise SpillwayError(f"MLServer answered: {head[:20]!r} {body[:300]!r}")
        self._free.put_nowait((reader, writer))
        return time.perf_counter()


async def _asked(port: int, count: int, seconds: float) -> tuple[list[float], float]:
    """Latencies from when each was due, in seconds, at 150/s; then queries/s with all at once."""
    asking = _Asking(port)
    await asking.begin()
    await asyncio.gather(*(asking.ask(number) for number in range(200)))
    began = time.perf_counter()

    async def due(number: int) -> float:
        at = began + number / RATE
        await asyncio.sleep(max(0.0, at - time.perf_counter()))
        return await asking.ask(number) - at

    latencies = await asyncio.gather(*(due(number) for number in range(int(seconds * RATE))))
    began = time.perf_counter()
    ends = await asyncio.gather(*(asking.ask(number) for number in range(count)))
    return latencies, count / (max(ends) - began)


def mlserver(python: Path, folder: Path, model: str, seconds: float) -> Run:
    with _serving(python, folder, model) as (port, process):
        latencies, rate = asyncio.run(_asked(port, _DRAINED[model], seconds))
        memory = sum(each.memory_info().rss for each in (process, *process.children(recursive=True))) / 1e6
    p50, p99 = 1e3 * np.percentile(latencies, (50, 99))
    return Run(rate, float(p50), float(p99), memory)


def beside(folder: Path, settings: ClientSettings, repeats: int, seconds: float, python: Path | None) -> Table:
    """All of them in turns. `python`: of MLServer's environment; without it that one is missing."""
    rows = []
    for model in _DRAINED:
        systems: dict[str, list[Run]] = {"bare loop": [], "thread": [], "process": [], "MLServer": []}
        for repeat in range(repeats):
            systems["bare loop"].append(apart(bare, model, seconds))
            for where in ("thread", "process"):
                systems[where].append(stage(folder, settings, model, where, repeat, seconds))
            if python is not None:
                systems["MLServer"].append(mlserver(python, folder / f"mlserver-{model[0]}-{repeat}", model, seconds))
        forms = ("{:,.0f}", "{:.1f}", "{:.1f}", "{:.0f}", "{:.2f}", "{:.1f}", "{:.1f}", "{:.2f}")
        for system, runs in systems.items():
            columns = [
                median_spread([value for run in runs if (value := getattr(run, key)) == value], form, "")
                for key, form in zip(Run.__slots__, forms, strict=True)
            ]
            rows.append([model, system, *(columns if runs else [MISSING] + [""] * 7)])
    return Table(
        "Beside a bare loop and MLServer (Figure 3.11)",
        ("model", "system", "queries/s", "p50 ms", "p99 ms", "MB", "predict ms", "queue ms", "rest ms", "gap ms"),
        rows,
        (
            f"Queries/s: all queries at once, batches of at most {_BATCH} (the stage's limit is aimd).",
            f"Latencies and their parts: at {RATE:g}/s; predict is of the batch, the rest is all else.",
            "Memory: front and worker, or server, with the model; Kafka is not in it.",
            "Gap: of a worker between two batches, while all queries wait.",
            f"MLServer: the model in the server's process, adaptive batching within 2 ms, {_CONNECTIONS} connections.",
        ),
    )
