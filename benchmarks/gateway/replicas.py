"""Gateways in processes of their own, before a served pipeline that doubles a number."""

from __future__ import annotations

import re
import socket
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from benchmarks.scene import COMMAND, commanded, kafka, started
from benchmarks.steady import until
from spillway.agents.broker.ports import free_port
from spillway.lineage.errors import SpillwayError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from spillway.producers.connection import ClientSettings

NAME: Final = "bench-gateway"
PARTITIONS: Final = 4
GRPC: Final = find_spec("grpc") is not None
_FILE: Final = f"""\
name: {NAME}
slo: 20s
partitions: {PARTITIONS}
policy: naive
limits: {{max_message_bytes: 262144}}
outputs:
  twice: {{}}
stages:
  - {{name: double, model: "gateway_models:Double"}}
"""
_MODELS: Final = """\
class Double:
    def predict(self, batch):
        numbers = [query.get("x") for query in batch]
        return [{"twice": 2 * x if isinstance(x, int | float) else 0} for x in numbers]
"""


def plain(number: int) -> tuple[str, dict[str, Any]]:
    """Return the path and the body of a query in plain JSON."""
    return f"/v1/pipelines/{NAME}/predict", {"inputs": {"x": number}}


def v2(number: int) -> tuple[str, dict[str, Any]]:
    """Return the path and the body of a query in the Open Inference Protocol."""
    tensor = {"name": "x", "datatype": "INT64", "shape": [], "data": [number]}
    return f"/v2/models/{NAME}/infer", {"inputs": [tensor]}


def read_answer(told: dict[str, Any]) -> Any:
    """Return the number that an answer in either form has."""
    outputs = told["outputs"]
    return outputs["twice"] if isinstance(outputs, dict) else outputs[0]["data"][0]


async def asked(session: aiohttp.ClientSession, replica: Replica, number: int) -> str:
    """Ask one query, in both forms in turn; return the status, or what is wrong with the answer, or why there is none.

    A `refused` or `reset` connection is one that its gateway did not take or did not keep.
    """
    path, body = (plain, v2)[number // 2 % 2](number)
    try:
        async with session.post(replica.url + path, json=body) as answer:
            told = await answer.json()
            wrong = answer.status == HTTPStatus.OK and read_answer(told) != 2 * number
            return "wrong answer" if wrong else str(answer.status)
    except TimeoutError:
        return "no answer"
    except aiohttp.ClientConnectorError:
        return "refused"
    except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError):
        return "reset"


@dataclass
class Replica:
    """One gateway, which can be killed and started anew on its port."""

    work: Path
    settings: ClientSettings
    number: int
    port: int
    grpc: int = 0  # its port; 0: none
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self.process.pid if self.process is not None else 0

    def start(self) -> None:
        """Start it; it listens once `listens`."""
        command = [*COMMAND, "gateway", "pipeline.yaml", "--run-dir", "run", "--replica", str(self.number)]
        where = ["--bootstrap", str(self.settings.bootstrap), "--http", f"127.0.0.1:{self.port}"]
        others = ["--grpc", f"127.0.0.1:{self.grpc}"] if self.grpc else []
        self.process = started([*command, *where, *others], self.work, self._log)

    def listens(self) -> bool:
        """Return whether it takes connections. Raises SpillwayError where it has ended."""
        if self.process is not None and self.process.poll() is not None:
            raise SpillwayError(f"gateway {self.number} ended: {self.log()[-2000:]}")
        try:
            socket.create_connection(("127.0.0.1", self.port), 1.0).close()
        except OSError:
            return False
        return True

    @property
    def _log(self) -> Path:
        return self.work / f"gateway.{self.number}.log"

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def memory(self, kind: str) -> int:
        """Return the bytes that it has resident (`VmRSS`), or had at most (`VmHWM`)."""
        text = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii", errors="replace")
        found = re.search(rf"{kind}:\s+(\d+) kB", text)
        return int(found[1]) << 10 if found else 0


@dataclass(frozen=True)
class Scene:
    """What is served."""

    work: Path
    settings: ClientSettings
    replicas: list[Replica]


@contextmanager
def scene(count: int) -> Iterator[Scene]:
    """Start a Kafka, the pipeline, and `count` gateways."""
    with ExitStack() as stack:
        work, settings = stack.enter_context(kafka())
        (work / "gateway_models.py").write_text(_MODELS)
        stack.enter_context(commanded(work, _FILE, "--bootstrap", str(settings.bootstrap)))
        replicas = [Replica(work, settings, n, free_port(), free_port() if GRPC else 0) for n in range(count)]
        for replica in replicas:
            stack.callback(replica.kill)
            replica.start()
        for replica in replicas:
            until(replica.listens, f"gateway {replica.number} listens")
        yield Scene(work, settings, replicas)
