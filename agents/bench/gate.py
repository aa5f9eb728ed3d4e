"""What the gate's transactions cost: latency that it adds, the time of a commit, outcomes a second.

Three ways from the outcomes topic to a reader, interleaved and repeated: no gate at all (the reader reads the outcomes
themselves), a gate without transactions, and the gate as it is.

Run as `spillway bench gate`, or `python -m spillway.agents.bench.gate`.
"""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from spillway.agents.broker import EmbeddedBroker
from spillway.agents.cli.options import bootstrap_option, client_config_option, json_option
from spillway.agents.live.topics import ensure
from spillway.lineage import headers
from spillway.lineage.errors import BrokerError
from spillway.lineage.hops import Hop
from spillway.lineage.message import PREDICTION, Outcome
from spillway.lineage.values import codec
from spillway.producers.connection import ClientSettings
from spillway.topology import topics
from spillway.topology.load import load

if TYPE_CHECKING:
    from collections.abc import Iterator


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

    def __exit__(self, *_exception: object) -> None:
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
            [sys.executable, "-m", "spillway.agents.bench.gate_variants", *arguments], stdout=subprocess.PIPE, text=True
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
                raise BrokerError(f"no outcome arrived ({self.variant}) for {_QUIET_SECONDS:.0f} s")
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
                raise BrokerError(f"only {seen} of {count} outcomes arrived ({self.variant})")
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


VARIANTS = (NO_GATE, "plain", "transactional")
RATES = (100.0, 1_000.0)
_WARM_SECONDS = 1.0


@click.command()
@bootstrap_option
@client_config_option
@click.option(
    "--repeats", type=click.IntRange(1), default=7, show_default=True, help="Interleaved runs; reports medians."
)
@click.option(
    "--seconds", type=click.FloatRange(0.1), default=3.0, show_default=True, help="Seconds of each latency run."
)
@click.option("--drain", type=click.IntRange(1), default=50_000, show_default=True, help="Outcomes to drain per run.")
@json_option
def gate(
    bootstrap: str | None, client_config: Path | None, repeats: int, seconds: float, drain: int, *, as_json: bool
) -> None:
    """Measure what the gate costs, with and without its transactions.

    Uses a Kafka of its own unless --bootstrap names one.

    \b
    Example: spillway bench gate --repeats 3
    """  # noqa: D301 - click's own marks
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spillway-bench-")))
        if bootstrap is None:
            bootstrap = stack.enter_context(EmbeddedBroker(folder / "kafka")).bootstrap
        rows = measure(ClientSettings.load(bootstrap, client_config), folder, repeats, seconds, drain)
    click.echo(json.dumps(rows, indent=2) if as_json else _table(rows))


def measure(settings: ClientSettings, folder: Path, repeats: int, seconds: float, drain: int) -> list[dict[str, Any]]:
    """Run everything; one row per variant, medians over the repeats (times in milliseconds)."""
    runs: dict[str, list[dict[str, float]]] = {variant: [] for variant in VARIANTS}
    for _ in range(repeats):
        for variant in VARIANTS:
            with Lane(settings, variant, f"bench-{uuid.uuid4().hex[:8]}", folder) as lane:
                runs[variant].append(_run(lane, seconds, drain))
    return [
        {"variant": variant, **{key: statistics.median(run[key] for run in found) for key in found[0]}}
        for variant, found in runs.items()
    ]


def _run(lane: Lane, seconds: float, drain: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for rate in RATES:
        with lane.gate() as writes:
            lane.latencies(rate, _WARM_SECONDS)  # it joins its group and finds its connections meanwhile
            taken = lane.latencies(rate, seconds)
        found |= {f"p50_ms_at_{rate:.0f}": _at(taken, 0.5), f"p99_ms_at_{rate:.0f}": _at(taken, 0.99)}
        found |= {f"write_p50_ms_at_{rate:.0f}": _at(writes, 0.5), f"write_p99_ms_at_{rate:.0f}": _at(writes, 0.99)}
    lane.preload(drain)
    with lane.gate():
        found["drained_per_second"] = lane.drain(drain)
    return found


def _at(seconds: list[float], share: float) -> float:
    """A quantile, in milliseconds; 0 where nothing was measured."""
    ordered = sorted(seconds)
    return ordered[int(share * (len(ordered) - 1))] * 1000 if ordered else 0.0


def _table(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'':14} {'p50 / p99 ms':>18} {'p50 / p99 ms':>18} {'write p50 / p99':>18} {'drained':>10}"]
    lines.append(f"{'':14} {'at 100/s':>18} {'at 1,000/s':>18} {'ms at 1,000/s':>18} {'a second':>10}")
    for row in rows:
        pairs = [f"{row[f'{a}_ms_at_{b}']:.1f} / {row[f'{c}_ms_at_{b}']:.1f}" for a, c, b in _CELLS]
        cells = " ".join(f"{pair:>18}" for pair in pairs)
        lines.append(f"{row['variant']:14} {cells} {row['drained_per_second']:>10,.0f}")
    return "\n".join(lines)


_CELLS = (("p50", "p99", 100), ("p50", "p99", 1000), ("write_p50", "write_p99", 1000))

if __name__ == "__main__":
    gate()
