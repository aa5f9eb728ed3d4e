"""A pipeline's topics, stages played by the test, and gates as processes of their own."""

import signal
import subprocess
import sys
import time

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from spillway.agents.live.admin import Admin
from spillway.agents.live.gate.pulled_input import committed_places
from spillway.agents.live.spans import SpanReader, bounds
from spillway.agents.live.topics import ensure
from spillway.agents.supervise.registry import entries
from spillway.lineage import headers
from spillway.lineage.hops import Hop
from spillway.lineage.message import PREDICTION, Outcome
from spillway.lineage.ports import Bounds
from spillway.lineage.values import codec
from spillway.producers.connection import ClientSettings
from spillway.topology import topics
from spillway.topology.load import load
from tests.waiting import until

PARTITIONS = 3
GATE = """
import sys
from pathlib import Path
from spillway.agents.live.gate import pulled_input
from spillway.agents.live.gate.process import GateProcessConfig, run
from spillway.producers.connection import ClientSettings
from spillway.topology.load import load
pipeline, bootstrap, run_dir, replica, session = sys.argv[1:]
if session:
    pulled_input.SESSION_MS = int(session)
config = GateProcessConfig(
    pipeline=load(pipeline), settings=ClientSettings(bootstrap=bootstrap), run_dir=Path(run_dir), replica=int(replica)
)
code = run(config)
loaded = {name.partition(".")[0] for name in sys.modules}
assert not loaded & {"torch", "faust"}, loaded
sys.exit(code)
"""


class GateBench:
    def __init__(self, broker, name, folder, stages, sinks=""):
        self.file = folder / "pipeline.yaml"
        self.file.write_text(f"name: {name}\nslo: 1s\npartitions: {PARTITIONS}\n{sinks}\nstages:\n{stages}\n")
        self.pipeline = load(self.file)
        self.name = name
        self.folder = folder
        self.settings = ClientSettings(bootstrap=broker)
        self.admin = AdminClient({**self.settings.confluent(), "log_level": 2})
        self.asking = Admin({**self.settings.confluent(), "log_level": 2})
        ensure(self.settings, topics.topic_plan(self.pipeline.spec))
        self.connect()
        self.gates = []
        self._readers = {}  # by topic
        self._read = {}  # by topic: the messages, and by partition how far they go

    def connect(self):
        """Let the stages have a producer; a new one after an outage, which may have cost the old one a partition."""
        steady = {"linger.ms": 2, "enable.idempotence": True, "log_level": 2}
        self.producer = Producer({**self.settings.confluent(), **steady})

    def report(self, request_id, partition, sequence, committed=0, stage="a", outcome=None, **changes):
        now = int(time.time() * 1e6)
        fields = {
            "request_id": request_id,
            "sent_us": now,
            "deadline_us": now + 60_000_000,
            "hop": Hop(stage, 0, partition, sequence, committed),
            "extra": [("x-user", b"u\xff")],
        }
        said = headers.Headers(**fields | changes)
        outcome = outcome or Outcome(PREDICTION, outputs={"id": request_id}, stage=stage)
        self.raw(codec.encode_outcome(outcome), headers.encode(said), partition, request_id.encode())

    def raw(self, value, pairs, partition=0, key=b"k"):
        self.producer.produce(topics.outcomes(self.name), value, key, partition=partition, headers=pairs)
        self.producer.poll(0)

    def gate(self, replica=0, session=""):
        """Start a gate; `session`: its milliseconds, if not its own."""
        arguments = [str(self.file), self.settings.bootstrap, str(self.folder / "run"), str(replica), str(session)]
        # To a file: nobody reads a pipe while the test goes on, and a gate that fills one stands still.
        with self._log(len(self.gates)).open("wb") as log:
            process = subprocess.Popen([sys.executable, "-c", GATE, *arguments], stderr=log)
        self.gates.append(process)
        return process

    def _log(self, number):
        return self.folder / f"gate-{number}.log"

    def said(self, process):
        return self._log(self.gates.index(process)).read_text()

    def released(self, topic=topics.egress):
        """Everything on the egress (or another topic) that is committed now; what was read before is kept."""
        name = topic(self.name)
        if name not in self._readers:
            self._readers[name], self._read[name] = SpanReader(self.settings.confluent(), name), ([], {})
        messages, ends = self._read[name]
        spans = bounds(self.asking, name, range(PARTITIONS), 90)
        news = {n: Bounds(max(span.start, ends.get(n, 0)), span.end) for n, span in spans.items()}
        messages += list(self._readers[name].read(news, 90))  # all or nothing
        ends.update({n: span.end for n, span in spans.items()})
        return [*messages]

    def await_released(self, count, within=120.0, topic=topics.egress):
        return until(lambda: found if len(found := self.released(topic)) >= count else None, within)

    def committed(self):
        """The gate's group's offsets and their notes, by partition."""
        asking = Consumer({**self.settings.confluent(), "group.id": f"{self.name}.gate", "log_level": 2})
        try:
            return committed_places(asking, topics.outcomes(self.name), range(PARTITIONS), 90)
        finally:
            asking.close()

    def stop(self, process):
        """Stop a gate as an orchestrator does, once it has got so far as to hear that, and see it end well."""
        until(lambda: any(entry.pid == process.pid for entry in entries(self.folder / "run", self.name)), 120)
        process.send_signal(signal.SIGTERM)
        process.wait(600)
        assert process.returncode == 0, self.said(process)
        assert "Traceback" not in self.said(process)

    def close(self):
        for reader in self._readers.values():
            reader.close()
        for process in self.gates:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
            print(
                f"gate {process.pid} ended with {process.returncode}: {self.said(process)}"
            )  # seen where a test fails


def ids(messages):
    return [dict(message.headers())["x-request-id"].decode() for message in messages]
