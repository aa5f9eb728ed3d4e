"""A stage goes on whatever the keys of a record's headers are."""

import asyncio
import time

import numpy as np

from spillway.lineage import headers, reasons
from spillway.lineage.message import Query
from spillway.lineage.values import codec
from tests.strange_headers import NotUtf8, send_raw

FRAGILE = """
partitions: 1
limits: {max_message_bytes: 1MiB}
stages:
  - name: fragile
    model: stage_models:Square
    inputs: {x: {dtype: float32, shape: [2]}}
"""
X = np.float32([1, 2])


def pairs_of(request_id):
    now = time.time_ns() // 1000
    return headers.encode(headers.Headers(request_id, now, now + 600_000_000))


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
        asyncio.run(send_raw(one.bootstrap, f"{one.name}.ingress", 0, records))
        one.send(f"between-{prefix}", {"x": X})
        one.flush()
    out, dead = one.reader("outcomes"), one.reader("dead")
    found = {request_id: outcome.reason for request_id, outcome in out.answers(6).items()}
    good = dict.fromkeys(["a", "c", "between-0", "between-1", "between-2"], "")
    assert found == {**good, "b": reasons.BAD_HEADERS}
    dead.wait(4)  # b once, as its repetitions are the same query; the nameless one each time
    letters = [codec.Decoder().dead_letter(message.value()) for message in dead.settle()]
    assert any((b"\xff\xfex", b"1") in letter.headers for letter in letters)
    until(lambda: one.committed("fragile") == one.ends())
    assert process.poll() is None
