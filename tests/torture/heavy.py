"""Runs under as many queries as two cores can bear, while processes are killed: what the queues come to, in memory.

The oracle of the other runs reads everything that was written, which is too much here. Here the answers tell: of a
counter that was asked N times each number below N is answered once, or a query was lost, done twice or done out of
what was lost.
"""

import os
import signal
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random

import yaml
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from spillway.agents.live.topics import ensure
from spillway.agents.supervise.registry import entries
from spillway.lineage import headers
from spillway.lineage.message import PREDICTION, Query
from spillway.lineage.values.codec import Decoder, encode_query
from spillway.producers.connection import ClientSettings
from spillway.topology import topics
from spillway.topology.load import load
from tests.acceptance.serving import ROOT, serving
from tests.oracle import Answer, outcome_problems
from tests.waiting import until

MODELS = "tests.torture.models"
SLO = 600
PARTITIONS = 3
BATCH = 32
_MIB = 1 << 20
MOST = 20  # problems that are told
_FLUSH_SECONDS = 120.0
_NOISE = 100_000


class Flood:
    """So many queries at a rate, each of a size; sends in a thread of its own."""

    def __init__(self, bootstrap, pipeline, *, count, rate, size):
        self.ids = [f"q{number}" for number in range(count)]
        self.sent = 0
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
    """Reads the outcomes as they come."""

    def __init__(self, bootstrap, pipeline):
        self.answers = []
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "heavy", "isolation.level": "read_committed", "log_level": 0}
        )
        egress = topics.egress(pipeline)
        self._consumer.assign([TopicPartition(egress, n, OFFSET_BEGINNING) for n in range(PARTITIONS)])
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
                if message.error() is None:
                    outcome = decoder.outcome(message.value())
                    told = _numbers(outcome.outputs) if outcome.kind == PREDICTION else outcome.reason
                    self.answers.append(Answer(headers.decode(message.headers()).request_id, outcome.kind, told))
        self._consumer.close()


class Heavy:
    """One pipeline under a flood, from its start to its judgement. A context manager."""

    def __init__(self, bootstrap, name, stages, folder, **more):
        """`more`: of the pipeline's file."""
        self.bootstrap, self.name, self.folder = bootstrap, name, folder
        self.path = folder / "pipeline.yaml"
        stages = [{"batching": {"size": BATCH}, **stage, "model": f"{MODELS}:{stage['model']}"} for stage in stages]
        spec = {"name": name, "slo": SLO, "partitions": PARTITIONS, "policy": "naive", "stages": stages, **more}
        self.path.write_text(yaml.safe_dump(spec, sort_keys=False))
        self.pipeline = load(self.path)
        self.peaks = {}
        self._stack = ExitStack()

    def __enter__(self):
        ensure(ClientSettings(bootstrap=self.bootstrap), topics.topic_plan(self.pipeline.spec))
        self._watch = Watch(self.bootstrap, self.name)
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

    def kill(self, name):
        found = [entry for entry in self.entries() if entry.name == name]
        assert found, f"{name} is not there to be killed"
        self.note_memory()
        os.kill(found[0].pid, signal.SIGKILL)

    def is_back(self, name):
        until(lambda: any(e.name == name and e.ready for e in self.entries()), 60, f"{name} is back")

    def note_memory(self):
        """Note the most that each process has had so far; of one that is killed it is not known afterwards."""
        for entry in self.entries():
            try:
                self.peaks[entry.name] = max(self.peaks.get(entry.name, 0.0), peak(entry.pid))
            except OSError:  # it has ended since
                continue

    def problems(self, flood, seconds):
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
        self.note_memory()
        code = self.served.stop()
        if code:
            problems.append(f"spillway serve ended with {code}")
        right = outcome_problems(flood.ids, self._watch.answers, lambda _id, kind, _told: kind == PREDICTION)
        return [*problems, *right[:MOST], *counted(self._watch.answers)]


def peak(pid):
    """The most resident memory that a process has had, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1_024 / _MIB
    raise OSError(f"process {pid} has no memory")


def counted(answers):
    """The counter has said each number once, where there is one."""
    said = [answer.told["of_all"] for answer in answers if answer.kind == PREDICTION and "of_all" in answer.told]
    if sorted(said) == list(range(len(said))):
        return []
    return [f"the total has said {len(said)} numbers, {len(set(said))} different ones, up to {max(said)}"]


def _numbers(outputs):
    return {name: value for name, value in outputs.items() if isinstance(value, int)}
