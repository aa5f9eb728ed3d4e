"""The same model in a bare loop, in a served stage's thread and process, and in MLServer (Figure 3.11).

MLServer has an interpreter of its own and speaks JSON over HTTP; a served stage is asked over Kafka.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.clipper.models import images, predictor
from benchmarks.clipper.served import AT_ONCE, RATE, Run, stage
from benchmarks.output import Table, median_spread
from benchmarks.scene import ended, started
from benchmarks.steady import until
from spillway.agents.broker.ports import free_port
from spillway.lineage.errors import SpillwayError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway.producers.connection import ClientSettings

_BATCH: Final = 64
_CONNECTIONS: Final = 64
_FORMS: Final = ("{:,.0f}", "{:.1f}", "{:.1f}")  # of a run
_ROOT: Final = Path(__file__).parents[2]


def bare(model: str, seconds: float) -> Run:
    """Run full batches one after the other."""
    predict, rows = predictor(model), list(images()[0][:_BATCH])
    predict(rows)
    count, began = 0, time.perf_counter()
    while (took := time.perf_counter() - began) < seconds:
        predict(rows)
        count += _BATCH
    return Run(count / took)


@contextmanager
def _serving(python: Path, folder: Path, model: str) -> Iterator[int]:
    """Start MLServer with the model in its own process, batching adaptively; its port."""
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
        until(lambda: _ready(port), f"MLServer is ready; see {folder / 'log'}")
        yield port
    finally:
        ended(process)


def _ready(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port)
    try:
        connection.request("GET", "/v2/models/digits/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _requests() -> list[bytes]:
    made = []
    for row in images()[0][:1_000]:
        data = np.round(row, 3).tolist()
        body = json.dumps({"inputs": [{"name": "x", "shape": [1, 784], "datatype": "FP32", "data": data}]}).encode()
        head = "POST /v2/models/digits/infer HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        made.append(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return made


async def _asked(port: int, count: int, seconds: float) -> tuple[list[float], float]:
    """Latencies from when each was due, in seconds, at 150/s; then queries/s with all at once."""
    requests, free = _requests(), asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]]()
    for _ in range(_CONNECTIONS):  # each of which has one request at a time
        free.put_nowait(await asyncio.open_connection("127.0.0.1", port))

    async def ask(number: int, at: float) -> float:
        """Ask when it is due, as soon as a connection is free; how long it took since."""
        await asyncio.sleep(max(0.0, at - time.perf_counter()))
        reader, writer = await free.get()
        writer.write(requests[number % len(requests)])
        head = await reader.readuntil(b"\r\n\r\n")
        (length,) = (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        body = await reader.readexactly(length)
        if not head.startswith(b"HTTP/1.1 200"):
            raise SpillwayError(f"MLServer answered: {head[:20]!r} {body[:300]!r}")
        free.put_nowait((reader, writer))
        return time.perf_counter() - at

    async def ask_all(count: int, apart: float) -> list[float]:
        began = time.perf_counter()
        return await asyncio.gather(*(ask(number, began + number * apart) for number in range(count)))

    await ask_all(200, 0.0)
    return await ask_all(int(seconds * RATE), 1 / RATE), count / max(await ask_all(count, 0.0))


def mlserver(python: Path, folder: Path, model: str, seconds: float) -> Run:
    with _serving(python, folder, model) as port:
        latencies, rate = asyncio.run(_asked(port, AT_ONCE[model], seconds))
    return Run(rate, *map(float, 1e3 * np.percentile(latencies, (50, 99))))


def beside(folder: Path, settings: ClientSettings, repeats: int, seconds: float, python: Path | None) -> Table:
    """All of them in turns. `python`: of MLServer's environment; without it that one is left out."""
    rows = []
    for model in AT_ONCE:
        names = ("bare loop", "thread", "process", *(() if python is None else ("MLServer",)))
        systems: dict[str, list[Run]] = {name: [] for name in names}
        for repeat in range(repeats):
            systems["bare loop"].append(bare(model, seconds))
            for where in ("thread", "process"):
                systems[where].append(stage(folder, settings, model, where, repeat, seconds))
            if python is not None:
                systems["MLServer"].append(mlserver(python, folder / f"mlserver-{model[0]}-{repeat}", model, seconds))
        for system, runs in systems.items():
            values = [[each for each in column if each is not None] for column in zip(*runs, strict=True)]
            rows.append([model, system, *(median_spread(*each, "") for each in zip(values, _FORMS, strict=True))])
    return Table(
        "Beside a bare loop and MLServer (Figure 3.11)",
        ("model", "system", "queries/s", "p50 ms", "p99 ms"),
        rows,
        (
            f"Queries/s: all at once, in batches of at most {_BATCH} (the stage: aimd). Latencies: at {RATE:g}/s.",
            f"MLServer: the model in the server's process, adaptive batching within 2 ms, {_CONNECTIONS} connections.",
        ),
    )
