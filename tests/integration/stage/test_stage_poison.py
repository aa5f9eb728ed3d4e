"""Whatever a record holds, the stage goes on: its query fails with a reason where it has an id, and all is kept."""

import asyncio
import time

import numpy as np
import psutil
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy

from spillway.lineage import headers, reasons
from spillway.lineage.message import Outcome, Query
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


def now_us():
    return time.time_ns() // 1000


def pairs_of(request_id, **changed):
    pairs = dict(headers.encode(headers.Headers(request_id, now_us(), now_us() + 10**7)))
    for name, value in changed.items():
        header = name.replace("_", "-")
        pairs.pop(header) if value is None else pairs.update({header: value})
    return list(pairs.items())


# name -> (what to send beside or instead of a good query, the reason)
WIRE = {
    "not-avro": ({"value": b"hello"}, reasons.NOT_AVRO),
    "no-value": ({"value": None}, reasons.NOT_AVRO),
    "unknown-schema": ({"value": b"\xc3\x01" + b"12345678" + b"body"}, reasons.UNKNOWN_SCHEMA),
    "cut": ({"value": codec.encode_query(Query({"x": X}))[:-3]}, reasons.CORRUPT),
    "an-outcome": ({"value": codec.encode_outcome(Outcome("failed", reason="x"))}, reasons.UNKNOWN_SCHEMA),
    "wrong-dtype": ({"value": codec.encode_query(Query({"x": np.float64([1, 2])}))}, reasons.BAD_INPUT),
    "wrong-shape": ({"value": codec.encode_query(Query({"x": np.float32([1])}))}, reasons.BAD_INPUT),
    "missing-input": ({"value": codec.encode_query(Query({"y": X}))}, reasons.BAD_INPUT),
    "too-large": ({"value": codec.encode_query(Query({"x": X, "pad": b"x" * 1_048_000}))}, None),
    "over-a-limit": ({"value": codec.encode_query(Query({"x": X, "pad": b"x" * 1_048_576}))}, reasons.TOO_LARGE),
    "no-deadline": ({"pairs": "spillway_deadline"}, None),  # the pipeline's SLO, then
    "absurd-sent": ({"pairs": {"spillway_sent": b"tomorrow"}}, reasons.BAD_HEADERS),
    "huge-key": ({"key": b"k" * 10_000}, reasons.TOO_LARGE),
}
MODEL = {
    "raise": reasons.MODEL_RAISED,
    "short": reasons.WRONG_RESULT_COUNT,
    "text": reasons.BAD_RESULT,
    "object": reasons.BAD_RESULT,
    "huge": reasons.BAD_RESULT,
}


def send_matrix(one):
    """Send every kind of poison, each between two good queries; return the reasons by id."""
    expected = {}
    for name, (changes, reason) in WIRE.items():
        options = dict(changes)
        changed = options.get("pairs")
        if changed:
            told = {changed: None} if isinstance(changed, str) else changed
            options["pairs"] = pairs_of(name, **told)
        one.send(name, {"x": X}, **options)
        expected[name] = reason
        one.send(f"after-{name}", {"x": X})
        expected[f"after-{name}"] = None
    for act, reason in MODEL.items():
        one.send(act, {"x": X, "act": act})
        expected[act] = reason
        one.send(f"after-{act}", {"x": X})
        expected[f"after-{act}"] = None
    return expected


def test_every_kind_of_poison_fails_alone_and_is_kept(stage, until):
    one = stage(FRAGILE)
    expected = send_matrix(one)
    nobody = [
        {"pairs": [], "value": codec.encode_query(Query({"x": X}))},
        {"pairs": pairs_of("none", x_request_id=None), "value": codec.encode_query(Query({"x": X}))},
        {"pairs": pairs_of("none", x_request_id=b"\xff\xfe"), "value": b"junk"},
    ]
    for options in nobody:
        one.send("none", {}, **options)
    one.send("last", {"x": X})
    expected["last"] = None
    one.flush()
    process = one.start("fragile")
    out, dead = one.reader("outcomes"), one.reader("dead")
    out.wait(len(expected))
    out.settle()
    found = {told.request_id: (outcome.reason or None) for told, outcome in out.outcomes()}
    assert found == expected
    assert len(out.messages) == len(expected)
    failed = {request_id for request_id, reason in expected.items() if reason}
    dead.wait(len(failed) + len(nobody))
    dead.settle()
    letters = [(dict(message.headers()), codec.Decoder().dead_letter(message.value())) for message in dead.messages]
    assert {told["x-request-id"].decode() for told, _ in letters if "x-request-id" in told} == failed
    assert len(letters) == len(failed) + len(nobody)
    for told, letter in letters:
        assert told["spillway-reason"].decode() == letter.reason
        assert (letter.topic, letter.stage) == (f"{one.name}.ingress", "fragile")
    by_id = {told["x-request-id"].decode(): letter for told, letter in letters if "x-request-id" in told}
    assert by_id["not-avro"].value == b"hello"
    assert dict(by_id["absurd-sent"].headers)[b"spillway-sent"] == b"tomorrow"
    assert "cannot stand this one" in by_id["raise"].text
    until(lambda: one.committed("fragile") == one.ends())
    metrics = one.metrics("fragile")
    assert metrics["spillway_dead_letters_total"] == len(letters)
    assert one.stop(process) == 0


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
    found = {told.request_id: (outcome.reason, outcome.outputs.get("y")) for told, outcome in out.outcomes()}
    assert found == {"a": ("", 1), "b": (reasons.MODEL_DIED, None), "c": ("", 3)}
    assert "exit code 9" in one.log("f")
    assert one.stop(process) == 0


@pytest.mark.parametrize("where", ["thread", pytest.param("process", marks=pytest.mark.nightly)])
def test_a_batch_with_one_culprit_is_served_but_for_it(stage, where):
    one = stage(
        f"""
partitions: 1
stages:
  - {{name: f, model: "stage_models:Fragile", workers: {{where: {where}}}, batching: {{size: 8, delay: 300ms}}}}
"""
    )
    for index in range(8):
        one.send(f"q{index}", {"x": index, **({"act": "raise"} if index == 3 else {})})
    one.flush()
    one.start("f")
    out = one.reader("outcomes")
    out.wait(8)
    found = {told.request_id: (outcome.kind, outcome.outputs.get("y")) for told, outcome in out.outcomes()}
    assert found.pop("q3") == ("failed", None)
    assert found == {f"q{index}": ("prediction", index) for index in range(8) if index != 3}


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
