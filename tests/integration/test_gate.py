"""The gate as a process on a real broker: what comes through, what does not, and in which shape."""

import asyncio
import json
import time
import urllib.request

from spillway.lineage import hops, reasons
from spillway.lineage.hops import Hop
from spillway.lineage.message import FAILED
from spillway.lineage.values import codec
from spillway.topology import topics
from tests.strange_headers import NotUtf8, send_raw
from tests.waiting import until

from .gate_bench import PARTITIONS, ids


def test_an_outcome_goes_through_unchanged_and_only_once_over_a_stop_in_good_order(make_gate):
    bench = make_gate()
    gate = bench.gate()
    for number in range(30):
        for _ in range(3):
            bench.report(f"r{number}", number % PARTITIONS, sequence=number)
    bench.producer.flush()
    released = bench.await_released(30)
    assert sorted(ids(released)) == sorted(f"r{number}" for number in range(30))
    by_id = dict(zip(ids(released), released, strict=True))
    came = {ids([m])[0]: m for m in reversed(bench.released(topics.outcomes))}  # the first copies
    for request_id, message in by_id.items():
        assert message.value() == came[request_id].value()
        assert message.headers() == came[request_id].headers()
        assert message.key() == request_id.encode()
        assert message.partition() == came[request_id].partition()
    entry = bench.folder / "run" / bench.name / "gate.0.json"
    said = json.loads(entry.read_text())
    assert (said["role"], said["pid"]) == ("gate", gate.pid)
    labels = f'pipeline="{bench.name}",replica="0",stage="gate"'
    until(lambda: f"spillway_good_total{{{labels}}} 30.0" in metrics(said["port"]), 120)
    assert f'spillway_latency_seconds_count{{kind="prediction",{labels}}} 30.0' in metrics(said["port"])
    bench.stop(gate)
    assert not entry.exists()
    group = bench.admin.describe_consumer_groups([f"{bench.name}.gate"])[f"{bench.name}.gate"].result()
    assert group.members == []
    assert {offset for offset, _ in bench.committed().values()} == {30}
    assert all(note.startswith("r1:") and ";e" in note for _, note in bench.committed().values())

    gate = bench.gate()  # which knows what was released: all that came before comes again
    for number in range(40):
        bench.report(f"r{number}", number % PARTITIONS, sequence=number)
    bench.producer.flush()
    until(lambda: sum(offset for offset, _ in bench.committed().values()) == 130, 120)
    bench.stop(gate)
    assert sorted(ids(bench.released())) == sorted(f"r{number}" for number in range(40))


def metrics(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        return answer.read().decode()


def test_what_cannot_be_read_is_kept_with_its_reason_and_fails_its_query(make_gate):
    bench = make_gate()
    now = b"%d" % int(time.time() * 1e6)
    hop = ("spillway-hops", hops.encode((Hop("a", 0, 0, 0, 0),)))
    bench.raw(b"rubbish", [("x-request-id", b"no-avro"), ("spillway-sent", now), ("spillway-deadline", now), hop])
    bench.producer.flush()
    strange = [(None, b"v", [("a", b"1"), (NotUtf8("zz"), b"2")])]
    asyncio.run(send_raw(bench.settings.bootstrap, topics.outcomes(bench.name), 2, strange))
    bench.report("after", 2, 1)
    bench.producer.flush()
    gate = bench.gate()
    released = bench.await_released(2)
    outcomes = {i: codec.Decoder().outcome(m.value()) for i, m in zip(ids(released), released, strict=True)}
    assert outcomes.keys() == {"no-avro", "after"}
    assert (outcomes["no-avro"].kind, outcomes["no-avro"].reason) == (FAILED, reasons.NOT_AVRO)
    letters = [codec.Decoder().dead_letter(letter.value()) for letter in bench.await_released(2, topic=topics.dead)]
    assert {(letter.partition, letter.reason) for letter in letters} == {
        (0, reasons.NOT_AVRO), (2, reasons.BAD_HEADERS)
    }  # fmt: skip
    bench.stop(gate)
