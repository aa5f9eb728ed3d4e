"""A stage under test: its pipeline file, its topics, its processes, and what goes in and comes out."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from spillway.agents.live.topics import ensure
from spillway.lineage import headers
from spillway.lineage.keys import partition_for
from spillway.lineage.message import Query
from spillway.lineage.values import codec
from spillway.producers import cluster
from spillway.producers.connection import ClientSettings
from spillway.topology.load import load
from spillway.topology.topics import topic_plan
from tests import waiting

MODELS = '''
import os, time
import numpy as np
from spillway import Flagged


class Square:
    """Its answer is a function of its input, so that a mix-up shows."""

    version = "sq1"

    def predict(self, batch):
        return [{"y": query["x"] ** 2, "id": query.request_id} for query in batch]


class Counted:
    """Says how often it ran, so that a second evaluation of a query shows."""

    deterministic = True

    def __init__(self):
        self.ran = 0

    def predict(self, batch):
        time.sleep(.005)
        assert not any(query.request_id or query.key for query in batch)
        self.ran += len(batch)
        return [{"y": query["x"] ** 2, "ran": self.ran} for query in batch]


class Linear:
    """Its own parity model, exactly, as its numbers are whole; slow enough to be caught at it."""

    def predict(self, batch):
        time.sleep(.01)
        return [{"y": W @ query["x"]} for query in batch]


W = np.arange(12.0).reshape(3, 4) - 5


def finished(outputs):
    return {"total": float(outputs["y"].sum())}


class Pass:
    def predict(self, batch):
        return batch


class Fragile:
    """Ends its process where its input says so."""

    def predict(self, batch):
        if any(query.get("act") == "die" for query in batch):
            os._exit(9)
        return [Flagged({"y": query["x"]}, sure=True) for query in batch]


class Slow:
    def predict(self, batch):
        time.sleep(.02)
        return batch
'''


class Stage:
    """One pipeline of which single stages run; everything is read and written from outside."""

    def __init__(self, bootstrap: str, name: str, folder: Path, spec: str) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.folder = folder
        self.settings = ClientSettings(bootstrap=bootstrap)
        self.file = folder / "pipeline.yaml"
        self.file.write_text(f"name: {name}\nslo: 30s\n{spec}")
        (folder / "stage_models.py").write_text(MODELS)
        self.pipeline = load(self.file)
        ensure(self.settings, topic_plan(self.pipeline.spec))
        self.processes: list[subprocess.Popen[bytes]] = []
        self.producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "message.max.bytes": 8 << 20})
        self.readers: list[Consumer] = []

    def start(self, stage: str, replica: int = 0, **options: Any) -> subprocess.Popen[bytes]:
        """Start a replica; its log is in a file beside the pipeline's."""
        told = {
            "pipeline": str(self.file), "stage": stage, "replica": replica, "bootstrap": self.bootstrap,
            "run_dir": str(self.folder / "run"), **options,
        }  # fmt: skip
        log = (self.folder / f"{stage}.{replica}.log").open("ab")
        return self._spawn([str(Path(__file__).with_name("run_stage.py")), json.dumps(told)], log)

    def gate(self) -> subprocess.Popen[bytes]:
        command = ["-P", "-m", "spillway.agents.cli.main", "serve", str(self.file), "--gate"]
        command += ["--bootstrap", self.bootstrap, "--run-dir", str(self.folder / "run")]
        return self._spawn(command, (self.folder / "gate.log").open("ab"))

    def _spawn(self, arguments: list[str], log: BinaryIO) -> subprocess.Popen[bytes]:
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
        with log:
            process = subprocess.Popen([sys.executable, *arguments], cwd=self.folder, env=env, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def log(self, stage: str, replica: int = 0) -> str:
        return (self.folder / f"{stage}.{replica}.log").read_text()

    def stop(self, process: subprocess.Popen[bytes], how: int = signal.SIGTERM, within: float = 600.0) -> int:
        process.send_signal(how)
        return process.wait(within)

    # -- what goes in -------------------------------------------------------------------------------------------------

    def send(self, request_id: str, inputs: dict[str, Any], *, topic: str = "ingress", **options: Any) -> None:
        """Send a query, due `within` seconds; `value`, `pairs` and `key` override what a client would write."""
        now = time.time_ns() // 1000
        came = headers.Headers(
            request_id,
            now,
            now + options.pop("within", 30) * 1_000_000,
            extra=[("x-tenant", b"t1")],
            **options.pop("told", {}),
        )
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

    def send_many(self, count: int, prefix: str = "q", **options: Any) -> dict[str, int]:
        """Send queries with x = 0, 1, ...; return x by id."""
        sent = {f"{prefix}-{x}": x for x in range(count)}
        for request_id, x in sent.items():
            self.send(request_id, {"x": x}, **options)
        self.flush()
        return sent

    def flush(self) -> None:
        assert self.producer.flush(90) == 0

    # -- what comes out -----------------------------------------------------------------------------------------------

    def reader(self, topic: str):
        reader = Reader(self.bootstrap, f"{self.name}.{topic}")
        self.readers.append(reader.consumer)
        return reader

    def committed(self, stage: str, topic: str = "ingress") -> dict[int, int]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": f"{self.name}.{stage}"})
        asked = [TopicPartition(f"{self.name}.{topic}", n) for n in range(self.pipeline.spec.partitions)]
        found = {place.partition: max(place.offset, 0) for place in consumer.committed(asked, timeout=60)}
        consumer.close()
        return found

    def ends(self, topic: str = "ingress") -> dict[int, int]:
        reader = cluster.Reader(self.settings, {})  # asks again where a new topic's leader is not known yet
        found = reader.ends(f"{self.name}.{topic}", self.pipeline.spec.partitions, 60.0)
        reader.close()
        return {place.partition: place.offset for place in found}

    def samples(self, stage: str, replica: int = 0) -> list[Any]:
        """Scrape a replica; nothing while it is not there."""
        try:
            entry = json.loads((self.folder / "run" / self.name / f"{stage}.{replica}.json").read_text())
            with urllib.request.urlopen(f"http://127.0.0.1:{entry['port']}/metrics", timeout=30) as answer:
                text = answer.read().decode()
        except OSError:
            return []
        return [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def metrics(self, stage: str, replica: int = 0) -> dict[str, float]:
        """Scrape a replica: the sum over labels by sample name."""
        found: dict[str, float] = {}
        for sample in self.samples(stage, replica):
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
        return found

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        for consumer in self.readers:
            consumer.close()


class Reader:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self.consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
        partitions = self.consumer.list_topics(topic, 10).topics[topic].partitions
        self.consumer.assign([TopicPartition(topic, n, 0) for n in partitions])
        self.messages: list[Any] = []

    def poll(self, seconds: float = 0.2) -> None:
        first = self.consumer.poll(seconds)
        got = [first, *self.consumer.consume(1000, 0)] if first is not None else []
        self.messages += [message for message in got if message.error() is None]

    def wait(self, count: int, seconds: float = 120.0) -> list[Any]:
        bound = waiting.Bound(seconds)
        while len(self.messages) < count:
            assert not bound.over, f"{len(self.messages)} of {count} messages came"
            self.poll()
        return self.messages

    def settle(self, seconds: float = 1.0) -> list[Any]:
        """Wait until nothing has come for a while: for what must not come."""
        quiet = time.monotonic() + seconds
        while time.monotonic() < quiet:
            before = len(self.messages)
            self.poll(0.1)
            if len(self.messages) > before:
                quiet = time.monotonic() + seconds
        return self.messages

    def outcomes(self) -> list[tuple[Any, Any]]:
        decoder = codec.Decoder()
        return [(headers.decode(message.headers()), decoder.outcome(message.value())) for message in self.messages]


SQUARE = """
partitions: 4
stages:
  - name: square
    model: stage_models:Square
"""


@pytest.fixture
def stage(broker, unique_name, tmp_path):
    """Make a pipeline of a spec's text (without name and slo); its processes end with the test."""
    made = []

    def make(spec: str = SQUARE) -> Stage:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(Stage(broker, f"{unique_name}-{len(made)}", folder, spec))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def until():
    """Poll a condition until it holds, at most so many seconds; return what it gave."""

    return lambda condition, seconds=120.0: waiting.until(condition, seconds)
