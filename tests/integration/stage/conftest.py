"""A stage under test: its models, and what goes in and comes out."""

import json
import signal
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from spillway.lineage import headers
from spillway.lineage.values import codec
from spillway.producers import cluster
from tests import waiting
from tests.integration.processes import Processes, making

MODELS = '''
import time
import numpy as np


class Square:
    """Its answer is a function of its input, so that a mix-up shows."""

    version = "sq1"

    def predict(self, batch):
        return [{"y": query["x"] ** 2, "id": query.request_id} for query in batch]


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


class Slow:
    def predict(self, batch):
        time.sleep(.02)
        return batch
'''


class Stage(Processes):
    """One pipeline of which single stages run."""

    def __init__(self, bootstrap: str, name: str, folder: Path, spec: str) -> None:
        (folder / "stage_models.py").write_text(MODELS)
        super().__init__(bootstrap, name, folder, spec)
        self.readers: list[Consumer] = []

    def start(self, stage: str, replica: int = 0, **options: Any) -> subprocess.Popen[bytes]:
        return self.play(f"{stage}.{replica}", stage, replica, **options)

    def gate(self) -> subprocess.Popen[bytes]:
        where = ["--bootstrap", self.bootstrap, "--run-dir", str(self.folder / "run")]
        return self.run("gate", "-P", "-m", "spillway.agents.cli.main", "serve", str(self.file), "--gate", *where)

    def log(self, stage: str, replica: int = 0) -> str:
        return super().log(f"{stage}.{replica}")

    def stop(self, process: subprocess.Popen[bytes], how: int = signal.SIGTERM, within: float = 600.0) -> int:
        process.send_signal(how)
        return process.wait(within)

    def send_many(self, count: int, prefix: str = "q", **options: Any) -> dict[str, int]:
        """Send queries with x = 0, 1, ...; return x by id."""
        sent = {f"{prefix}-{x}": x for x in range(count)}
        for request_id, x in sent.items():
            self.send(request_id, {"x": x}, **options)
        self.flush()
        return sent

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
        super().close()
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

    def answers(self, count: int) -> dict[str, Any]:
        """The outcomes of so many queries, each of which has come once."""
        self.wait(count)
        self.settle()
        found = {told.request_id: outcome for told, outcome in self.outcomes()}
        assert len(self.messages) == len(found) == count
        return found

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
    with making(Stage, broker, unique_name, tmp_path) as make:
        yield lambda spec=SQUARE: make(spec)


@pytest.fixture
def until():
    """Poll a condition until it holds, at most so many seconds; return what it gave."""

    return lambda condition, seconds=120.0: waiting.until(condition, seconds)
