"""A stage goes on whatever a record's headers hold, and whatever becomes of the processes of its workers."""

import asyncio
import time

import numpy as np
import psutil
from aiokafka import AIOKafkaProducer
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy

from spillway.lineage import headers, reasons
from spillway.lineage.message import Query
from spillway.lineage.values import codec
from tests.worker_processes import workers_of

FRAGILE = """
partitions: 1
limits: {max_message_bytes: 1MiB}
stages:
  - name: fragile
    model: stage_models:Fragile
    inputs: {x: {dtype: float32, shape: [2]}}
"""
X = np.float32([1, 2])


def pairs_of(request_id):
    now = time.time_ns() // 1000
    return headers.encode(headers.Headers(request_id, now, now + 600_000_000))


class NotUtf8(str):
    __slots__ = ()

    def encode(self, *_):
        return b"\xff\xfe" + str(self).encode()


async def send_raw(bootstrap, topic, records):
    """Write one batch in which header keys may be any bytes."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        batch = producer.create_batch()
        batch._builder = _DefaultRecordBatchBuilderPy(2, 0, 0, -1, -1, -1, 1 << 20)
        for key, value, pairs in records:
            assert batch.append(key=key, value=value, timestamp=None, headers=pairs) is not None
        batch.close()
        await (await producer.send_batch(batch, topic, partition=0))
    finally:
        await producer.stop()


def test_header_keys_that_are_not_utf8_stop_nobody(stage, until):
    one = stage(FRAGILE)
    value = codec.encode_query(Query({"x": X}))
    strange = [(NotUtf8("x"), b"1")]
    records = [
        (b"a", value, pairs_of("a")),
        (b"b", value, pairs_of("b") + strange),
        (None, None, strange),
        (b"c", value, pairs_of("c")),
    ]
    process = one.start("fragile")
    for prefix in range(3):
        asyncio.run(send_raw(one.bootstrap, f"{one.name}.ingress", records))
        one.send(f"between-{prefix}", {"x": X})
        one.flush()
    out, dead = one.reader("outcomes"), one.reader("dead")
    out.wait(6)
    out.settle()
    found = {told.request_id: outcome.reason for told, outcome in out.outcomes()}
    good = dict.fromkeys(["a", "c", "between-0", "between-1", "between-2"], "")
    assert found == {**good, "b": reasons.BAD_HEADERS}
    dead.wait(4)  # b once, as its repetitions are the same query; the nameless one each time
    letters = [codec.Decoder().dead_letter(message.value()) for message in dead.settle()]
    assert any((b"\xff\xfex", b"1") in letter.headers for letter in letters)
    until(lambda: one.committed("fragile") == one.ends())
    assert process.poll() is None


def test_a_crash_of_the_models_own_process_fails_its_batch_and_the_stage_lives(stage):
    one = stage(
        "partitions: 1\nstages:\n"
        "  - {name: f, model: 'stage_models:Fragile', workers: {where: process}, batching: {size: 1}}\n"
    )
    process = one.start("f")
    for request_id, inputs in {"a": {"x": 1}, "b": {"x": 1, "act": "die"}, "c": {"x": 3}}.items():
        one.send(request_id, inputs)
    one.flush()
    out = one.reader("outcomes")
    out.wait(3)
    found = {told.request_id: outcome for told, outcome in out.outcomes()}
    assert found["b"].reason == reasons.MODEL_DIED
    assert [(found[name].outputs, found[name].flags) for name in "ac"] == [
        ({"y": 1}, {"f": {"sure": True}}), ({"y": 3}, {"f": {"sure": True}}),
    ]  # fmt: skip
    assert "exit code 9" in one.log("f")
    assert one.stop(process) == 0


def test_workers_that_are_killed_under_load_cost_no_query_and_double_none(stage, until):
    one = stage(
        "partitions: 4\nstages:\n"
        "  - {name: f, model: 'stage_models:Slow', workers: {count: 3, where: process}, batching: {size: 4}}\n"
    )
    process = psutil.Process(one.start("f").pid)
    killed = []

    def workers():
        return [each for each in workers_of(process) if each.pid not in killed]

    until(lambda: one.metrics("f").get("spillway_model_instances") == 3)
    began = time.monotonic()
    for number in range(600):  # 200 a second, and one of those that are there is killed every second
        time.sleep(max(0.0, began + number / 200 - time.monotonic()))
        one.send(f"q{number}", {"x": number}, within=120)
        if number % 200 == 100 and (there := workers()):
            there[0].kill()
            killed.append(there[0].pid)
    one.flush()
    assert len(killed) == 3
    out = one.reader("outcomes")
    out.wait(600)
    out.settle()
    found = {told.request_id: (outcome.kind, outcome.outputs.get("x")) for told, outcome in out.outcomes()}
    assert len(out.messages) == 600
    assert found == {f"q{number}": ("prediction", number) for number in range(600)}
    until(lambda: one.metrics("f").get("spillway_model_instances") == 3)
