"""One hop, side by side: our stage driver with a do-nothing model, and other ways to get from topic to topic.

Every contestant runs in a process of its own, on topics of its own, and only one runs at a time; the order of the
contestants is the same in every repeat, so that a slow minute of the machine hits them alike. Latency counts from when
a message was due, not from when it was sent.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks.scene import cpu_of, ended, started
from spillway.agents.live.topics import ensure
from spillway.lineage.errors import SpillwayError
from spillway.lineage.headers import SENT
from spillway.topology import topics
from spillway.topology.load import Pipeline, parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.producers.connection import ClientSettings

OURS = "spillway"
DESCRIPTIONS = {
    OURS: "this stage driver, do-nothing model, codec, batches of up to 64",
    "aiokafka": "aiokafka getmany + send, bytes",
    "confluent": "confluent-kafka consume + produce, bytes",
    "faust": "Faust as its manual has it, same codec",
    "quix": "Quix Streams, bytes",
}
_PARTITIONS = 12
_BURST = 3000
_STALL = 60.0  # seconds without a message: the contestant hangs
_SPEC = """
name: {name}
slo: 60s
partitions: {partitions}
stages:
  - {{name: relay, model: "benchmarks.hop.relays:Noop", batching: {{max: 64}}}}
"""


@dataclass(slots=True)
class Phase:
    """One measured stretch of one run."""

    latencies: list[float] = field(default_factory=list)  # seconds, in the order of arrival
    cpu_us: float = 0.0  # of the contestant's process, per message
    rate: float = 0.0  # messages a second, first to last

    def quantile(self, share: float, first: int = 0) -> float:
        """Return a quantile of the latencies from the `first` message on, in milliseconds."""
        chosen = sorted(self.latencies[first:])
        return chosen[min(len(chosen) - 1, int(len(chosen) * share))] * 1000 if chosen else 0.0


def available(names: list[str], quix_python: Path | None, say: Callable[[str], None]) -> list[str]:
    if "quix" in names and quix_python is None and importlib.util.find_spec("quixstreams") is None:
        say("quix is left out: Quix Streams is not installed here; see --quix-python")
        return [name for name in names if name != "quix"]
    return names


class Contest:
    """One contestant's topics, process and measurements."""

    def __init__(self, settings: ClientSettings, name: str, folder: Path, quix_python: Path | None) -> None:
        self._settings = settings
        self._name = name
        self._id = f"hop-{name}-{uuid.uuid4().hex[:8]}"
        self._folder = folder
        self._python = str(quix_python.absolute()) if name == "quix" and quix_python is not None else sys.executable
        spec = _SPEC.format(name=self._id, partitions=_PARTITIONS)
        self._file = folder / f"{self._id}.yaml"
        self._file.write_text(spec)
        self._pipeline: Pipeline = parse(spec, self._file)

    def run(self, seconds: float, messages: int) -> dict[str, float]:
        plan = topics.topic_plan(self._pipeline.spec)
        ensure(self._settings, plan)
        reader = self._reader()
        process: subprocess.Popen[bytes] | None = None
        try:
            self._send([[0, messages]]).wait()
            process = self._start()
            contestant = psutil.Process(process.pid)
            drained = self._phase(reader, contestant, messages)
            found: dict[str, float] = {}
            for rate in (100, 1000):
                steady = self._timed(reader, contestant, [[rate, int(rate * seconds)]])
                found |= {f"p50_{rate}": steady.quantile(0.5), f"p99_{rate}": steady.quantile(0.99)}
                found[f"cpu_{rate}"] = steady.cpu_us
            burst = self._timed(reader, contestant, [[0, _BURST], [100, int(100 * seconds)]])
            found |= {f"{name}_after": burst.quantile(share, _BURST) for name, share in (("p50", 0.5), ("p99", 0.99))}
            found["p99_burst"] = burst.quantile(0.99)
            return found | {"drained": drained.rate, "cpu_drained": drained.cpu_us}
        finally:
            if process is not None:
                ended(process)
            reader.close()
            for future in AdminClient(self._settings.confluent()).delete_topics([t.name for t in plan]).values():
                future.exception(30)

    def _reader(self) -> Consumer:
        reader = Consumer(
            {
                **self._settings.confluent(),
                "group.id": f"{self._id}.bench",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                "queued.min.messages": 100_000,
            }
        )
        reader.assign([TopicPartition(topics.outcomes(self._id), n, 0) for n in range(_PARTITIONS)])
        return reader

    def _send(self, plan: list[list[int]]) -> subprocess.Popen[bytes]:
        arguments = [self._settings.bootstrap, topics.ingress(self._id), str(_PARTITIONS), json.dumps(plan)]
        return subprocess.Popen([sys.executable, "-m", "benchmarks.hop.sender", *arguments])

    def _start(self) -> subprocess.Popen[bytes]:
        module = ["benchmarks.hop.relays", self._name, self._settings.bootstrap, self._id]
        if self._name == OURS:
            where = ["--bootstrap", self._settings.bootstrap, "--run-dir", str(self._folder / "run")]
            module = ["spillway.agents.cli.main", "serve", str(self._file), "--stage", "relay", *where]
        log, tree = self._folder / f"{self._id}.log", str(Path(__file__).parents[2])
        # Faust and Quix Streams leave folders where they are
        return started([self._python, "-m", *module], self._folder, log, PYTHONPATH=tree)

    def _timed(self, reader: Consumer, contestant: psutil.Process, plan: list[list[int]]) -> Phase:
        sender = self._send(plan)
        phase = self._phase(reader, contestant, sum(count for _, count in plan))
        sender.wait()
        return phase

    def _phase(self, reader: Consumer, contestant: psutil.Process, count: int) -> Phase:
        phase = Phase()
        first = last = heard = time.time()
        before = 0.0
        while len(phase.latencies) < count:
            message = reader.poll(0.5)
            now = time.time()
            batch = [] if message is None else [message, *reader.consume(1000, 0)]
            if not batch:
                if now - heard > _STALL or contestant.status() == psutil.STATUS_ZOMBIE:
                    raise SpillwayError(f"{self._name}: no message came; see {self._folder / self._id}.log")
                continue
            heard = now
            if not phase.latencies:
                first, before = now, cpu_of(contestant)
            for one in batch:
                if one.error() is None:
                    phase.latencies.append(now - int(dict(one.headers())[SENT]) / 1e6)
            last = now
        phase.cpu_us = (cpu_of(contestant) - before) / count * 1e6
        phase.rate = (count - 1) / max(last - first, 1e-9)
        return phase
