"""Runs under as many queries as two cores can bear, while processes are killed: what the queues come to, in memory.

The oracle of the other runs reads everything that was written, which is too much here. Here the answers tell: of a
counter that was asked N times each number below N is answered once, or a query was lost, done twice or done out of
what was lost.
"""

import os
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import psutil
import yaml
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from agents.live.topics import ensure
from agents.supervise.registry import entries
from lineage import headers
from lineage.message import PREDICTION, Query
from lineage.replication import Base
from lineage.values.codec import Decoder, encode_query
from lineage.values.replication import ReplicationDecoder
from producers.connection import ClientSettings
from tests.acceptance.serving import ROOT, serving
from tests.torture.heavy_models import KEYS
from tests.waiting import until
from topology import topics
from topology.load import load

MODELS = "tests.torture.heavy_models"
SLO = 600
PARTITIONS = 3
BATCH = 32
_MIB = 1 << 20
_FLUSH_SECONDS = 120.0
_NOISE = 100_000


@dataclass(frozen=True)
class Answered:
    request_id: str
    kind: str
    told: Mapping[str, Any]  # the numbers of its outputs; of a loss the reason


@dataclass
class Weight:
    queries: int
    sent_in: float  # seconds
    drained_in: float  # from the first query's sending to the last outcome
    problems: list[str]
    peaks: dict[str, float] = field(default_factory=dict)  # MiB, of processes by their names
    killed: list[str] = field(default_factory=list)
    busy: tuple[float, ...] = ()  # the machine's load, as it began and ended


class Flood:
    """So many queries at a rate, each of a size; sends in a thread of its own."""

    def __init__(self, bootstrap, pipeline, *, count, rate, size):
        self.ids = [f"q{number}" for number in range(count)]
        self.sent = 0
        self.seconds = 0.0
        self.error = ""
        self._topic, self._rate, self._size = topics.ingress(pipeline), rate, size
        self._producer = Producer(
            {
                **ClientSettings(bootstrap=bootstrap).confluent(),
                "enable.idempotence": True,
                "linger.ms": 5,
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 0,
            }
        )
        self._noise = Random(0).randbytes((_NOISE + size) // 2).hex()  # nothing that compresses away
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.began = time.monotonic()
        self._thread.start()

    def finish(self):
        self._thread.join()
        assert self._producer.flush(_FLUSH_SECONDS) == 0
        self.seconds = time.monotonic() - self.began
        assert not self.error, self.error

    def abandon(self):
        self._stop.set()
        self._thread.join()

    def _run(self):
        for number, request_id in enumerate(self.ids):
            early = self.began + number / self._rate - time.monotonic()
            if early > 0:
                time.sleep(early)
            if self._stop.is_set():
                return
            self._send(number, request_id)
            self.sent = number + 1

    def _send(self, number, request_id):
        now = time.time_ns() // 1_000
        query = {"x": number}
        if self._size:
            start = number % _NOISE
            query["pad"] = self._noise[start : start + self._size]
        said = headers.encode(headers.Headers(request_id, now, now + SLO * 1_000_000))
        value = encode_query(Query(query))
        partition = number % PARTITIONS
        self._producer.produce(
            self._topic, value, request_id.encode(), partition, on_delivery=self._delivered, headers=said
        )
        self._producer.poll(0)

    def _delivered(self, error, message):
        if error is not None:
            self.error = f"{message.key()}: {error}"


class Watch:
    """Reads the outcomes, and who reigns, as they come."""

    def __init__(self, bootstrap, pipeline, stateful):
        self.answers = []
        self.newest = 0.0  # when the last one came
        self.claimants = {}
        self._versions = {topics.versions(pipeline, stage): stage for stage in stateful}
        self._egress = topics.egress(pipeline)
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "heavy", "isolation.level": "read_committed", "log_level": 0}
        )
        places = [(self._egress, n) for n in range(PARTITIONS)] + [(topic, 0) for topic in self._versions]
        self._consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in places])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self):
        self._stop.set()
        self._thread.join()

    def _run(self):
        decoder = Decoder()
        while not self._stop.is_set():
            for message in self._consumer.consume(1_000, 0.1):
                if message.error() is not None:
                    continue
                if message.topic() == self._egress:
                    outcome = decoder.outcome(message.value())
                    told = _numbers(outcome.outputs) if outcome.kind == PREDICTION else {"reason": outcome.reason}
                    self.answers.append(Answered(headers.decode(message.headers()).request_id, outcome.kind, told))
                    self.newest = time.monotonic()
                elif (message.key() or b"").startswith(b"base/") and message.value() is not None:
                    base = ReplicationDecoder().record(message.value())
                    assert isinstance(base, Base)
                    self.claimants[self._versions[message.topic()]] = base.claimant
        self._consumer.close()


class Heavy:
    """One pipeline under a flood, from its start to its judgement. A context manager."""

    def __init__(self, bootstrap, name, stages, folder, **more):
        """`more`: of the pipeline's file."""
        self.bootstrap, self.name, self.folder = bootstrap, name, folder
        self.path = folder / "pipeline.yaml"
        stages = [{"batch": BATCH, **stage, "model": f"{MODELS}:{stage['model']}"} for stage in stages]
        spec = {"name": name, "slo": SLO, "partitions": PARTITIONS, "policy": "naive", "stages": stages, **more}
        self.path.write_text(yaml.safe_dump(spec, sort_keys=False))
        self.pipeline = load(self.path)
        self.killed = []
        self.peaks = {}
        self._stack = ExitStack()

    def __enter__(self):
        ensure(ClientSettings(bootstrap=self.bootstrap), topics.topic_plan(self.pipeline.spec))
        stateful = [stage for stage, _ in self.pipeline.spec.places]
        self._watch = Watch(self.bootstrap, self.name, stateful)
        self._stack.callback(self._watch.close)
        self.served = self._stack.enter_context(serving(self.path, self.name, self.bootstrap, self.folder, cwd=ROOT))
        return self

    def __exit__(self, kind, error, trace):
        self._stack.close()

    def flood(self, *, rate, seconds, size=0):
        flood = Flood(self.bootstrap, self.name, count=round(rate * seconds), rate=rate, size=size)
        self._stack.callback(flood.abandon)
        return flood

    def entries(self):
        return [entry for entry in entries(self.served.run_dir, self.name) if entry.alive()]

    def primary(self, stage):
        until(lambda: stage in self._watch.claimants, 60, f"somebody reigns over {stage}")
        return self._watch.claimants[stage].rpartition("@")[0].removeprefix(f"{self.name}.")

    def kill(self, name):
        found = [entry for entry in self.entries() if entry.name == name]
        assert found, f"{name} is not there to be killed"
        self.note_memory()
        os.kill(found[0].pid, signal.SIGKILL)
        self.killed.append(name)

    def is_back(self, name):
        until(lambda: any(e.name == name and e.ready for e in self.entries()), 60, f"{name} is back")

    def note_memory(self):
        """Note the most that each process has had so far; of one that is killed it is not known afterwards."""
        for entry in self.entries():
            try:
                self.peaks[entry.name] = max(self.peaks.get(entry.name, 0.0), peak(entry.pid))
            except OSError:  # it has ended since
                continue

    def judged(self, flood, seconds, right, busy):
        """Wait for all outcomes, so long at most, and judge them."""
        flood.finish()
        problems = []
        try:
            until(
                lambda: len(self._watch.answers) >= len(flood.ids) or self.note_memory(),
                seconds,
                lambda: f"{len(self._watch.answers)} outcomes of {len(flood.ids)}",
            )
        except AssertionError as error:
            problems.append(str(error))
        drained = self._watch.newest - flood.began
        self.note_memory()
        code = self.served.stop()
        if code:
            problems.append(f"spillway serve ended with {code}")
        problems += once_each(flood.ids, self._watch.answers) + right(self._watch.answers)
        loads = (busy, psutil.getloadavg()[0])
        return Weight(len(flood.ids), flood.seconds, drained, problems, self.peaks, self.killed, loads)


def peak(pid):
    """The most resident memory that a process has had, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1_024 / _MIB
    raise OSError(f"process {pid} has no memory")


def once_each(sent, answers):
    """Each query has one outcome, and that is a prediction."""
    wanted, times = set(sent), Counter(answer.request_id for answer in answers)
    found = {
        "have no outcome": wanted - times.keys(),
        "were never sent": times.keys() - wanted,
        "have several outcomes": {request_id for request_id, count in times.items() if count > 1},
    }
    others = Counter(f"{each.kind}: {each.told.get('reason')}" for each in answers if each.kind != PREDICTION)
    return [
        *(f"{len(those)} queries {what}, as {sorted(those)[:3]}" for what, those in found.items() if those),
        *(f"{count} outcomes are {what}" for what, count in sorted(others.items())),
    ]


def counted(answers):
    """Each counter that answered has said each number once."""
    said = defaultdict(list)
    for answer in answers:
        if "of_all" in answer.told:
            said["the total"].append(answer.told["of_all"])
        if "of_key" in answer.told:
            said[f"key {answer.told['x'] % KEYS}"].append(answer.told["of_key"])
    return [
        f"{who} has said {len(numbers)} numbers, {len(set(numbers))} different ones, up to {max(numbers)}"
        for who, numbers in sorted(said.items())
        if sorted(numbers) != list(range(len(numbers)))
    ]


def _numbers(outputs):
    return {name: value for name, value in outputs.items() if isinstance(value, int)}
