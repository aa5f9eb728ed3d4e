"""A pipeline with states on a real broker: its processes, what goes in, and the oracle for what it has written."""

import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from spillway.agents.live.groups import member_label
from spillway.agents.live.states.beats import Reporter
from spillway.lineage import headers
from spillway.lineage.values import codec
from tests.integration.processes import Processes, making
from tests.state_oracle import Judge
from tests.state_topics import Recorder
from tests.waiting import until


class States(Processes):
    """One pipeline. Its topics are recorded from the start; `judge` ends that."""

    slo = 60

    def __init__(self, bootstrap: str, name: str, folder: Path, spec: str) -> None:
        super().__init__(bootstrap, name, folder, spec)
        self.recorder = Recorder(bootstrap, self.pipeline)
        self.processes: dict[str, Any] = {}
        self.sent: list[str] = []
        self.outcomes: dict[str, Any] = {}  # by request id, in the order in which they came
        self.twice: list[str] = []
        self._stop = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    # Processes -------------------------------------------------------------------------------------------------

    def start(self, stage: str, replica: int = 0, **options: Any) -> str:
        """Start a process; returns its label, by which the others know it here."""
        label = self.label(stage, replica)
        (self.folder / "run" / self.name / f"{label}.json").unlink(missing_ok=True)
        self.processes[label] = self.play(label, stage, replica, **options)
        return label

    def label(self, stage: str, replica: int) -> str:
        spec = next((each for each in self.pipeline.spec.stages if each.name == stage), None)
        return member_label(spec, replica) if spec is not None and spec.replicated else f"{stage}.{replica}"

    def start_all(self) -> None:
        """Start every member, one replica of every other stage, and the gate; wait until they take part."""
        labels = [self.start("gate")]
        for stage in self.pipeline.spec.stages:
            count = stage.processes if stage.replicated else 1
            labels += [self.start(stage.name, replica) for replica in range(count)]
        for label in labels:
            self.await_ready(label)

    def await_ready(self, label: str) -> None:
        def ready() -> bool:
            assert self.processes[label].poll() is None, self.log(label)
            try:
                return bool(json.loads((self.folder / "run" / self.name / f"{label}.json").read_text())["ready"])
            except (OSError, ValueError):
                return False

        until(ready, 120.0)

    def primary(self, stage: str) -> str:
        """The label of the first shard's primary: whose log says so last."""
        members = range(self.pipeline.spec.stage(stage).required_state.members)

        def newest() -> str | None:
            found = []
            for member in members:
                label = f"{stage}.0.{member}"
                if label in self.processes and self.processes[label].poll() is None:
                    epochs = re.findall(r"primary of epoch (\d+)", self.log(label))
                    ended = re.findall(r"stops being primary \(epoch (\d+)\)", self.log(label))
                    found += [(int(epoch), label) for epoch in epochs if epoch not in ended]
            return max(found)[1] if found else None

        return until(newest, 90.0)

    def kill(self, label: str, *, report: bool = True) -> None:
        """Kill a process; a member's end is reported as a supervisor does."""
        process = self.processes.pop(label)
        process.kill()
        process.wait(600)
        names = re.findall(rf"{re.escape(self.name)}\.{re.escape(label)}@\d+", self.log(label))
        if report and names:
            stage, shard, _ = label.split(".")
            reporter = Reporter(self.settings, self.name)
            reporter.report(stage, int(shard), names[-1])
            reporter.close()

    def stop(self, label: str) -> int:
        process = self.processes.pop(label)
        process.terminate()
        return process.wait(600)

    # What goes in and comes out --------------------------------------------------------------------------------

    def send(self, request_id: str, inputs: dict[str, Any], key: str = "") -> None:  # type: ignore[override]
        super().send(request_id, inputs, key=(key or request_id).encode(), parameters={})
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
        self.flush()

    def await_all(self) -> None:
        until(lambda: len(self.outcomes) >= len(self.sent), 120.0, self._missing)

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
            self.outcomes[request_id] = decoder.outcome(message.value())
        consumer.close()

    def close(self) -> None:
        super().close()
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
    with making(States, broker, unique_name, tmp_path) as make:
        yield make
