"""One pipeline of which a test starts the processes one by one; everything is read and written from outside."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from spillway.agents.live.topics import ensure
from spillway.lineage import headers
from spillway.lineage.keys import partition_for
from spillway.lineage.message import Query
from spillway.lineage.values import codec
from spillway.producers.connection import ClientSettings
from spillway.topology.load import load
from spillway.topology.topics import topic_plan

ROOT = Path(__file__).parents[2]


class Processes:
    """Its file, its topics and its processes, whose logs are in files beside the pipeline's."""

    slo = 30  # seconds

    def __init__(self, bootstrap: str, name: str, folder: Path, spec: str) -> None:
        self.bootstrap, self.name, self.folder = bootstrap, name, folder
        self.settings = ClientSettings(bootstrap=bootstrap)
        self.file = folder / "pipeline.yaml"
        self.file.write_text(f"name: {name}\nslo: {self.slo}s\n{spec}")
        self.pipeline = load(self.file)
        ensure(self.settings, topic_plan(self.pipeline.spec))
        self.started: list[subprocess.Popen[bytes]] = []
        self.producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "message.max.bytes": 8 << 20})

    def play(self, label: str, stage: str, replica: int, **options: Any) -> subprocess.Popen[bytes]:
        """Start a process of a stage, or the gate, with the knobs that tests turn."""
        told = {
            "pipeline": str(self.file), "stage": stage, "replica": replica, "bootstrap": self.bootstrap,
            "run_dir": str(self.folder / "run"), **options,
        }  # fmt: skip
        return self.run(label, str(Path(__file__).with_name("run_process.py")), json.dumps(told))

    def run(self, label: str, *arguments: str) -> subprocess.Popen[bytes]:
        env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        with (self.folder / f"{label}.log").open("ab") as log:
            process = subprocess.Popen([sys.executable, *arguments], cwd=self.folder, env=env, stdout=log, stderr=log)
        self.started.append(process)
        return process

    def log(self, label: str) -> str:
        return (self.folder / f"{label}.log").read_text()

    def send(self, request_id: str, inputs: dict[str, Any], *, topic: str = "ingress", **options: Any) -> None:
        """Send a query, due `within` seconds; `value`, `pairs` and `key` override what a client would write."""
        now = time.time_ns() // 1000
        due = now + options.pop("within", self.slo) * 1_000_000
        came = headers.Headers(request_id, now, due, extra=[("x-tenant", b"t1")], **options.pop("told", {}))
        key = options.pop("key", request_id.encode())
        query = Query(inputs, options.pop("parameters", {"p": 1}))
        self.producer.produce(
            f"{self.name}.{topic}",
            options["value"] if "value" in options else codec.encode_query(query),
            key,
            partition_for(key or b"", self.pipeline.spec.partitions),
            headers=options.get("pairs", headers.encode(came)),
        )
        self.producer.poll(0)

    def flush(self) -> None:
        assert self.producer.flush(90) == 0

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()


@contextmanager
def making(kind: type[Processes], bootstrap: str, name: str, folder: Path) -> Iterator[Callable[[str], Any]]:
    """What makes pipelines of a spec's text (without name and slo); their processes end with the context."""
    made: list[Processes] = []

    def make(spec: str) -> Processes:
        own = folder / str(len(made))
        own.mkdir()
        made.append(kind(bootstrap, f"{name}-{len(made)}", own, spec))
        return made[-1]

    yield make
    for one in made:
        one.close()
