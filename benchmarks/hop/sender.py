"""Sends the messages of `benchmarks hop` when they are due, in a process of its own so that reading does not delay it.

Run as `python -m benchmarks.hop.sender BOOTSTRAP TOPIC PARTITIONS PLAN`, where PLAN is a JSON list of
`[rate, count]`; a rate of 0 sends its messages at once. A message's `spillway-sent` says when it was due.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import Producer

from spillway.lineage import headers, trace
from spillway.lineage.message import Query
from spillway.lineage.values import codec

_LEAD = 0.2  # seconds before the first message, for the producer to connect
_PAD = 150  # makes a value of 200 bytes


def main() -> None:
    bootstrap, topic, partitions, plan = sys.argv[1:5]
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": 1, "queue.buffering.max.messages": 1_000_000}
    )
    producer.list_topics(topic, 10)
    value = codec.encode_query(Query({"x": b"x" * _PAD}, {"tenant": "bench"}))
    due = time.time() + _LEAD
    number = 0
    for rate, count in json.loads(plan):
        for _ in range(count):
            _send(producer, topic, number, int(partitions), value, due)
            number += 1
            due += 1 / rate if rate else 0.0
    producer.flush(60)


def _send(producer: Producer, topic: str, number: int, partitions: int, value: bytes, due: float) -> None:
    while (left := due - time.time()) > 0:
        producer.poll(0)
        time.sleep(min(left, 0.01))
    sent = int(due * 1e6)
    request_id = f"hop-{sent}-{number}"
    pairs = headers.encode(
        headers.Headers(
            request_id, sent, sent + 600_000_000, trace=trace.new_trace(request_id), extra=[("x-tenant", b"bench")]
        )
    )
    producer.produce(topic, value, request_id.encode(), number % partitions, headers=pairs)
    producer.poll(0)


if __name__ == "__main__":
    main()
