"""The gates that `bench gate` compares: the real one, and the same without transactions.

Run as `python -m spillway.agents.bench.gate_variants transactional|plain PIPELINE BOOTSTRAP RUN_DIR`. Says "ready" on
stdout; at SIGTERM it prints, as JSON, how long each round's write took.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from spillway.agents.live.gate.metrics import GateMetrics
from spillway.agents.live.gate.process import GateProcessConfig, build, member, transactional_writer
from spillway.lineage.errors import BrokerError
from spillway.producers.connection import ClientSettings
from spillway.topology.load import load

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError

    from spillway.agents.live.gate.transaction import Record, Turn, Writer


class PlainWriter:
    """Writes, waits for the acknowledgements, commits the offsets: what a crash in between would repeat."""

    def __init__(self, settings: ClientSettings, consumer: Consumer) -> None:
        self._producer = Producer({**settings.confluent(), "linger.ms": 0, "enable.idempotence": True})
        self._consumer = consumer

    def open(self, within: float) -> None:
        """Nothing to do: there is nobody to fence."""

    def write(self, turn: Turn, group: Any, within: float) -> None:  # noqa: ARG002 (the protocol's parameters)
        for record in turn.records:
            self._produce(record)
        if self._producer.flush(within):
            raise BrokerError("the broker did not acknowledge in time")
        self._consumer.commit(offsets=turn.positions, asynchronous=False)

    def withdraw(self, turn: Turn, group: Any, within: float) -> None:
        """Nothing to do either: nothing can be taken back."""

    def hold(self, topic: str, within: float) -> None:
        """Nothing to do either."""

    def close(self) -> None:
        """Nothing to do."""

    def _produce(self, record: Record) -> None:
        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is None:
                record.offset, record.appended = message.offset(), message.timestamp()[1] / 1000

        assert record.partition is not None  # outcomes keep theirs
        self._producer.produce(
            record.topic,
            record.value,
            record.key,
            record.partition,
            headers=list(record.headers),
            on_delivery=delivered,
        )


class TimedWriter:
    """Notes how long each write of another writer takes."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.seconds: list[float] = []

    def open(self, within: float) -> None:
        self._writer.open(within)

    def write(self, turn: Turn, group: Any, within: float) -> None:
        begun = time.perf_counter()
        self._writer.write(turn, group, within)
        self.seconds.append(time.perf_counter() - begun)

    def withdraw(self, turn: Turn, group: Any, within: float) -> None:
        self._writer.withdraw(turn, group, within)

    def hold(self, topic: str, within: float) -> None:
        self._writer.hold(topic, within)

    def close(self) -> None:
        self._writer.close()


def main(variant: str, pipeline: str, bootstrap: str, run_dir: str) -> None:
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    settings = ClientSettings(bootstrap=bootstrap)
    config = GateProcessConfig(pipeline=load(pipeline), settings=settings, run_dir=Path(run_dir))
    name = config.pipeline.spec.name
    consumer = member(settings, name, config.replica)
    inner = transactional_writer(config) if variant == "transactional" else PlainWriter(settings, consumer)
    writer = TimedWriter(inner)
    gate = build(config, consumer, writer, GateMetrics(name))
    gate.start()
    print("ready", flush=True)
    gate.run(stopping.is_set)
    consumer.close()
    print(json.dumps(writer.seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
