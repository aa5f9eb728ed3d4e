"""The programs that `benchmarks hop` compares: each reads one topic and writes another, in a process of its own.

Run as `python -m benchmarks.hop.relays NAME BOOTSTRAP PIPELINE`. All of them read `<pipeline>.ingress` and
write `<pipeline>.outcomes`, keep key, headers and partition, wait for acks=all and commit every half second what was
acknowledged. Those whose description says "codec" decode the query and its headers and encode an outcome; the others
pass bytes on. Clients are imported where they are used, so that each process holds only what it measures.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.agents.models.inputs import Inputs

COMMIT_SECONDS = 0.5
_BATCH = 500


class Noop:
    """The model that `benchmarks hop` gives our stage: it returns what it gets."""

    def predict(self, batch: list[Inputs]) -> list[Inputs]:
        return batch


class Ends:
    """Where a relay reads and writes."""

    def __init__(self, bootstrap: str, pipeline: str) -> None:
        self.bootstrap = bootstrap
        self.source = f"{pipeline}.ingress"
        self.sink = f"{pipeline}.outcomes"
        self.group = f"{pipeline}.relay"


def codec_step() -> Callable[[bytes, Any], tuple[bytes, list[tuple[str, bytes]]]]:
    """Return what a stage does to a message: decode headers and query, encode the outcome and its headers."""
    from spillway.lineage import headers  # noqa: PLC0415
    from spillway.lineage.message import PREDICTION, Outcome, StageTiming  # noqa: PLC0415
    from spillway.lineage.values import codec  # noqa: PLC0415

    decoder = codec.Decoder()

    def answered(value: bytes, pairs: Any) -> tuple[bytes, list[tuple[str, bytes]]]:
        came = headers.decode(pairs)
        query = decoder.query(value)
        timing = StageTiming("relay", 0.0, 0.0, 0.0, 1, "none", "")
        outcome = Outcome(PREDICTION, outputs=query.inputs, stage="relay", timings=[*query.timings, timing])
        return codec.encode_outcome(outcome), headers.encode(came)

    return answered


async def aiokafka(ends: Ends) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # noqa: PLC0415

    consumer = AIOKafkaConsumer(
        ends.source,
        bootstrap_servers=ends.bootstrap,
        group_id=ends.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    producer = AIOKafkaProducer(bootstrap_servers=ends.bootstrap, acks="all", enable_idempotence=True)
    await consumer.start()
    await producer.start()
    committed = time.monotonic()
    while True:
        batches = await consumer.getmany(timeout_ms=200)
        sent = [
            await producer.send(ends.sink, r.value, r.key, r.partition, headers=list(r.headers))
            for records in batches.values()
            for r in records
        ]
        if sent:
            await asyncio.gather(*sent)
        if time.monotonic() - committed > COMMIT_SECONDS:
            committed = time.monotonic()
            await consumer.commit()


def confluent(ends: Ends) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition  # noqa: PLC0415

    consumer = Consumer(
        {
            "bootstrap.servers": ends.bootstrap,
            "group.id": ends.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    producer = Producer({"bootstrap.servers": ends.bootstrap, "enable.idempotence": True, "linger.ms": 0})
    consumer.subscribe([ends.source])
    committed = time.monotonic()
    positions: dict[int, int] = {}
    waiting: deque[tuple[int, int]] = deque()
    while True:
        # Asking for many waits the whole time for them; so one is waited for, and what else is there is taken.
        first = consumer.poll(0.1)
        messages = [first, *consumer.consume(_BATCH, 0)] if first is not None else []
        for message in messages:
            if message.error() is None:
                partition, offset = message.partition(), message.offset()
                waiting.append((partition, offset))
                producer.produce(
                    ends.sink, message.value(), message.key(), partition, headers=message.headers(),
                    on_delivery=lambda _e, _m: _settle(waiting, positions),
                )  # fmt: skip
        producer.poll(0)
        if time.monotonic() - committed > COMMIT_SECONDS and positions:
            committed = time.monotonic()
            producer.flush()
            consumer.commit(
                offsets=[TopicPartition(ends.source, partition, offset) for partition, offset in positions.items()],
                asynchronous=True,
            )


def _settle(waiting: deque[tuple[int, int]], positions: dict[int, int]) -> None:
    partition, offset = waiting.popleft()
    positions[partition] = offset + 1


def faust(ends: Ends) -> None:
    """Run a Faust agent as its manual has it, with the same codec as a stage."""
    import faust as library  # noqa: PLC0415

    answered = codec_step()
    app = library.App(
        ends.group,
        broker=f"kafka://{ends.bootstrap}",
        store="memory://",
        web_enabled=False,
        topic_disable_leader=True,
        producer_acks=-1,
        broker_commit_interval=COMMIT_SECONDS,
        stream_buffer_maxsize=8192,
        key_serializer="raw",
        value_serializer="raw",
    )
    source = app.topic(ends.source, value_serializer="raw", key_serializer="raw")
    sink = app.topic(ends.sink, value_serializer="raw", key_serializer="raw")

    @app.agent(source)  # type: ignore[untyped-decorator]
    async def relay(stream: Any) -> None:
        async for event in stream.events():
            value, pairs = answered(event.message.value, event.message.headers)
            await sink.send(key=event.message.key, value=value, partition=event.message.partition, headers=pairs)

    sys.argv = ["faust", "worker", "-l", "info"]  # with -l error Faust may set the root logger to DEBUG, and be slowed
    app.main()


def quix(ends: Ends) -> None:
    """Run Quix Streams with bytes in and out."""
    from quixstreams import Application  # noqa: PLC0415

    app = Application(
        broker_address=ends.bootstrap,
        consumer_group=ends.group,
        auto_offset_reset="earliest",
        commit_interval=COMMIT_SECONDS,
        auto_create_topics=False,
        loglevel="ERROR",
        producer_extra_config={"enable.idempotence": True, "acks": "all"},
    )
    source = app.topic(ends.source, value_deserializer="bytes", key_deserializer="bytes")
    sink = app.topic(ends.sink, value_serializer="bytes", key_serializer="bytes")
    app.dataframe(source).to_topic(sink)
    app.run()


RELAYS: dict[str, Callable[[Ends], Any]] = {"aiokafka": aiokafka, "confluent": confluent, "faust": faust, "quix": quix}


def main() -> None:
    """Run the relay that the command line names until the process is ended."""
    name, bootstrap, pipeline = sys.argv[1:4]
    running = RELAYS[name](Ends(bootstrap, pipeline))
    if asyncio.iscoroutine(running):
        asyncio.run(running)


if __name__ == "__main__":
    main()
