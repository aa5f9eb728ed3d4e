"""A pipeline with states on a real broker: its processes, what goes in, and the oracle for what it has written."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from spillway.agents.live.groups import member_label
from spillway.agents.live.states.beats import Reporter
from spillway.agents.live.topics import ensure
from spillway.lineage import headers
from spillway.lineage.keys import partition_for
from spillway.lineage.message import Query
from spillway.lineage.values import codec
from spillway.producers.connection import ClientSettings
from spillway.topology.load import load
from spillway.topology.topics import topic_plan
from tests.state_oracle import Judge
from tests.state_topics import Recorder
from tests.waiting import until

ROOT = Path(__file__).parents[3]


class States:
    """One pipeline. Its topics are recorded from the start; `judge` ends that."""

    def __init__(self, bootstrap: str, name: str, folder: Path, spec: str) -> None:
        self.bootstrap, self.name, self.folder = bootstrap, name, folder
        self.settings = ClientSettings(bootstrap=bootstrap)
        self.file = folder / "pipeline.yaml"
        self.file.write_text(f"name: {name}\nslo: 60s\n{spec}")
        self.pipeline = load(self.file)
        ensure(self.settings, topic_plan(self.pipeline.spec))
        self.recorder = Recorder(bootstrap, self.pipeline)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self.sent: list[str] = []
        self.outcomes: dict[str, Any] = {}  # by request id, in the order in which they came
        self.came: dict[str, float] = {}
        self.twice: list[str] = []
        self._stop = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    # Processes -------------------------------------------------------------------------------------------------

    def start(self, stage: str, replica: int = 0, **options: Any) -> str:
        """Start a process; returns its label, by which the others know it here."""
        label = self.label(stage, replica)
        told = {
            "pipeline": str(self.file), "stage": stage, "replica": replica, "bootstrap": self.bootstrap,
            "run_dir": str(self.folder / "run"), **options,
        }  # fmt: skip
        (self.folder / "run" / self.name / f"{label}.json").unlink(missing_ok=True)
        with (self.folder / f"{label}.log").open("ab") as log:
            self.processes[label] = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("run_process.py")), json.dumps(told)],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                stdout=log,
                stderr=log,
            )
        return label

    def label(self, stage: str, replica: int) -> str:
        spec = next((each for each in self.pipeline.spec.stages if each.name == stage), None)
        return member_label(spec, replica) if spec is not None and spec.replicated else f"{stage}.{replica}"

    def start_all(self, **options: Any) -> None:
        """Start every member, one replica of every other stage, and the gate; wait until they take part."""
        labels = [self.start("gate")]
        for stage in self.pipeline.spec.stages:
            count = stage.processes if stage.replicated else 1
            labels += [self.start(stage.name, replica, **options) for replica in range(count)]
        for label in labels:
            self.await_ready(label)

    def await_ready(self, label: str, seconds: float = 120.0) -> None:
        def ready() -> bool:
            assert self.processes[label].poll() is None, self.log(label)
            try:
                return bool(json.loads((self.folder / "run" / self.name / f"{label}.json").read_text())["ready"])
            except (OSError, ValueError):
                return False

        until(ready, seconds)

    def log(self, label: str) -> str:
        return (self.folder / f"{label}.log").read_text()

    def primary(self, stage: str, shard: int = 0, seconds: float = 90.0) -> str:
        """The label of the shard's primary: whose log says so last."""
        members = range(self.pipeline.spec.stage(stage).required_state.members)

        def newest() -> str | None:
            found = []
            for member in members:
                label = f"{stage}.{shard}.{member}"
                if label in self.processes and self.processes[label].poll() is None:
                    epochs = re.findall(r"primary of epoch (\d+)", self.log(label))
                    ended = re.findall(r"stops being primary \(epoch (\d+)\)", self.log(label))
                    found += [(int(epoch), label) for epoch in epochs if epoch not in ended]
            return max(found)[1] if found else None

        return until(newest, seconds)

    def kill(self, label: str, how: int = signal.SIGKILL, *, report: bool = True) -> float:
        """End a process; a member's end is reported as a supervisor does. Returns when it was killed."""
        process = self.processes.pop(label)
        at = time.monotonic()
        process.send_signal(how)
        process.wait(600)
        names = re.findall(rf"{re.escape(self.name)}\.{re.escape(label)}@\d+", self.log(label))
        if report and names:
            stage, shard, _ = label.split(".")
            reporter = Reporter(self.settings, self.name)
            reporter.report(stage, int(shard), names[-1])
            reporter.close()
        return at

    def stop(self, label: str, within: float = 600.0) -> int:
        process = self.processes.pop(label)
        process.send_signal(signal.SIGTERM)
        return process.wait(within)

    # What goes in and comes out --------------------------------------------------------------------------------

    def send(self, request_id: str, inputs: dict[str, Any], key: str = "") -> None:
        now = time.time_ns() // 1000
        told = (key or request_id).encode()
        self.producer.produce(
            f"{self.name}.ingress",
            codec.encode_query(Query(inputs, {})),
            told,
            partition_for(told, self.pipeline.spec.partitions),
            headers=headers.encode(headers.Headers(request_id, now, now + 60_000_000)),
        )
        self.producer.poll(0)
        self.sent.append(request_id)

    def send_many(self, count: int, *, rate: float = 200.0, during: dict[int, Any] | None = None) -> None:
        """Send so many queries at a rate; `during` has what to call before which of them."""
        begun, first = time.monotonic(), len(self.sent)
        for number in range(count):
            if during and number in during:
                during[number]()
            left = begun + number / rate - time.monotonic()
            if left > 0:
                time.sleep(left)
            self.send(f"q{first + number}", {"x": first + number})
        assert self.producer.flush(90) == 0

    def await_all(self, seconds: float = 120.0) -> None:
        until(lambda: len(self.outcomes) >= len(self.sent), seconds, self._missing)

    def _missing(self) -> str:
        missing = [each for each in self.sent if each not in self.outcomes]
        return f"{len(missing)} of {len(self.sent)} queries have no outcome, as {missing[:5]}"

    def judge(self, right: Any = None, **options: Any) -> list[str]:
        """Everything that is wrong with what was written; `right(id, kind, told)` judges an outcome."""
        return Judge(self.recorder.finish(60.0), **options).problems(self.sent, right)

    def _read(self) -> None:
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
        )
        consumer.assign([TopicPartition(f"{self.name}.egress", n, 0) for n in range(self.pipeline.spec.partitions)])
        decoder = codec.Decoder()
        while not self._stop.is_set():
            message = consumer.poll(0.05)
            if message is None or message.error() is not None:
                continue
            request_id = headers.decode(message.headers()).request_id
            if request_id in self.outcomes:
                self.twice.append(request_id)
            self.came[request_id] = time.monotonic()
            self.outcomes[request_id] = decoder.outcome(message.value())
        consumer.close()

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
        self._stop.set()
        self._reader.join()
        self.recorder.close()
        for log in sorted(self.folder.glob("*.log")):  # seen where a test fails
            told = [
                line for line in log.read_text().splitlines() if not re.search(r" (faust|aiokafka|mode)| INFO \[", line)
            ]
            print(f"-- {log.name}", *told[-40:], sep="\n")


@pytest.fixture
def states(broker, unique_name, tmp_path):
    """Make a pipeline of a spec's text (without name and slo); its processes end with the test."""
    made = []

    def make(spec: str) -> States:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(States(broker, f"{unique_name}-{len(made)}", folder, spec))
        return made[-1]

    yield make
    for one in made:
        one.close()
