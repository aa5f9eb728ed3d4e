"""One way from the outcomes topic to a reader, with or without a gate on it, for `bench gate`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from agents.live.topics import ensure
from lineage import headers
from lineage.errors import BrokerError
from lineage.hops import Hop
from lineage.message import PREDICTION, Outcome
from lineage.values import codec
from topology import topics
from topology.load import load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    from producers.connection import ClientSettings

PARTITIONS = 12
NO_GATE = "no gate"
_VALUE = bytes(120)  # about 200 bytes with everything around it
_DEADLINE_US = 10_000_000
_QUIET_SECONDS = 30.0  # without a single outcome: something is broken


class Lane:
    """Topics of its own, a gate of the named variant, a writer and a reader."""

    def __init__(self, settings: ClientSettings, variant: str, name: str, folder: Path) -> None:
        self.variant = variant
        self._settings = settings
        self._name = name
        self._folder = folder
        self._file = folder / f"{name}.yaml"
        self._file.write_text(f"name: {name}\nslo: 1s\npartitions: {PARTITIONS}\nstages: [{{name: a, model: 'm:M'}}]\n")
        self._plan = topics.topic_plan(load(self._file).spec)
        ensure(settings, self._plan)
        self._sequences = [0] * PARTITIONS
        self._gate: subprocess.Popen[str] | None = None
        self._producer = Producer({**settings.confluent(), "linger.ms": 0, "enable.idempotence": True, "log_level": 2})
        self._reader = Consumer(
            {
                **settings.confluent(),
                "group.id": f"{name}.bench",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 100,
                "log_level": 2,
            }
        )
        source = topics.outcomes(name) if variant == NO_GATE else topics.egress(name)
        self._reader.assign([TopicPartition(source, partition, 0) for partition in range(PARTITIONS)])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._gate is not None:
            self._gate.kill()
            self._gate.wait()
        self._reader.close()
        admin = AdminClient({**self._settings.confluent(), "log_level": 2})
        for future in admin.delete_topics([topic.name for topic in self._plan]).values():
            future.exception()

    @contextmanager
    def gate(self) -> Iterator[list[float]]:
        """Run a gate; the list holds the seconds that each of its writes took, once it has ended."""
        writes: list[float] = []
        if self.variant == NO_GATE:
            yield writes
            return
        arguments = [self.variant, str(self._file), self._settings.bootstrap, str(self._folder / "run")]
        self._gate = subprocess.Popen(
            [sys.executable, "-m", "agents.bench.gate_variants", *arguments], stdout=subprocess.PIPE, text=True
        )
        assert self._gate.stdout is not None  # it is a pipe
        if self._gate.stdout.readline() != "ready\n":
            raise BrokerError(f"the {self.variant} gate did not start")
        yield writes
        self._gate.send_signal(signal.SIGTERM)
        said, _ = self._gate.communicate(timeout=60)
        self._gate = None
        writes += json.loads(said)

    def latencies(self, rate: float, seconds: float) -> list[float]:
        """Report at a steady rate; give the seconds from each report's sending to its arrival at the reader."""
        count = int(rate * seconds)
        sent: dict[bytes, float] = {}
        arrived: list[float] = []
        begun = time.perf_counter()
        number, heard = 0, begun
        while len(arrived) < count:
            now = time.perf_counter()
            while number < count and now >= begun + number / rate:
                sent[self._report(f"{number}-{begun}")] = time.perf_counter()
                number += 1
            message = self._reader.poll(0.0005)
            if message is not None and message.error() is None:
                heard = time.perf_counter()
                at = sent.pop(message.key(), None)
                if at is not None:
                    arrived.append(heard - at)
            elif now - heard > _QUIET_SECONDS:
                raise BrokerError(f"no outcome came through ({self.variant}) for {_QUIET_SECONDS:.0f} s")
        return arrived

    def preload(self, count: int) -> None:
        for number in range(count):
            self._report(f"p{number}")
            if number % 1000 == 0:
                self._producer.poll(0)
        self._producer.flush()

    def drain(self, count: int) -> float:
        """Give the outcomes a second that come through, from the first to the last of `count`."""
        first = last = 0.0
        seen = 0
        heard = time.perf_counter()
        while seen < count:
            messages = [m for m in self._reader.consume(1000, 0.05) if m.error() is None]
            now = time.perf_counter()
            if messages:
                first = first or now
                last = heard = now
                seen += len(messages)
            elif now - heard > _QUIET_SECONDS:
                raise BrokerError(f"only {seen} of {count} outcomes came through ({self.variant})")
        return seen / max(last - first, 1e-9)

    def _report(self, request_id: str) -> bytes:
        partition = hash(request_id) % PARTITIONS
        sequence, self._sequences[partition] = self._sequences[partition], self._sequences[partition] + 1
        now = time.time_ns() // 1000
        hop = Hop("a", 0, partition, sequence, max(0, sequence - 1000))
        pairs = headers.encode(headers.Headers(request_id, now, now + _DEADLINE_US, hop, extra=[("x-user", b"u")]))
        outcome = Outcome(PREDICTION, outputs={"answer": _VALUE}, stage="a")
        key = request_id.encode()
        self._producer.produce(
            topics.outcomes(self._name), codec.encode_outcome(outcome), key, partition, headers=list(pairs)
        )
        self._producer.poll(0)
        return key
