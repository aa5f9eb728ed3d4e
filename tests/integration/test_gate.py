"""The gate as a process on a real broker: what comes through, what does not, and in which shape."""

import json
import os
import subprocess
import sys
import time
import urllib.request

from spillway.lineage import headers, hops, reasons
from spillway.lineage.hops import Hop
from spillway.lineage.message import DROPPED, FAILED, PREDICTION, Outcome
from spillway.lineage.values import codec
from spillway.topology import topics
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


STRANGE = """
import asyncio, sys
from aiokafka import AIOKafkaProducer
class Key(str):
    def encode(self, *_):
        return b"\\xff\\xfe"
async def main():
    async with AIOKafkaProducer(bootstrap_servers=sys.argv[1]) as producer:
        await producer.send_and_wait(sys.argv[2], b"v", partition=2, headers=[("a", b"1"), (Key("zz"), b"2")])
asyncio.run(main())
"""


def test_what_cannot_be_read_is_kept_with_its_reason_and_fails_its_query(make_gate):
    bench = make_gate()
    now = b"%d" % int(time.time() * 1e6)
    times = [("spillway-sent", now), ("spillway-deadline", now)]
    bench.raw(b"rubbish", [("x-request-id", b"no-avro"), *times, hop(0)])
    bench.raw(None, [("x-request-id", b"no-value"), *times, hop(1)])
    bench.raw(b"any", [("x-request-id", b"no-times")])
    bench.raw(b"any", [("x-request-id", b"no-hop"), *times])
    bench.raw(b"any", [("x-request-id", b"strange"), *times, hop(2, stage="stranger")])
    bench.raw(b"any", [("x-request-id", b"elsewhere"), *times, hop(2, partition=1)])
    bench.raw(b"nobody's", [])
    bench.report("fine", 0, 3)
    bench.producer.flush()
    environment = {**os.environ, "AIOKAFKA_NO_EXTENSIONS": "1"}  # the compiled one takes no key that is no text
    arguments = [sys.executable, "-c", STRANGE, bench.settings.bootstrap, topics.outcomes(bench.name)]
    subprocess.run(arguments, env=environment, check=True, timeout=600)
    bench.report("after", 2, 1)
    bench.producer.flush()
    gate = bench.gate()
    released = bench.await_released(8)
    outcomes = {i: codec.Decoder().outcome(m.value()) for i, m in zip(ids(released), released, strict=True)}
    assert {outcomes.pop(name).kind for name in ("fine", "after")} == {PREDICTION}
    assert {i: (o.kind, o.stage, o.reason) for i, o in outcomes.items()} == {
        "no-avro": (FAILED, "gate", reasons.NOT_AVRO),
        "no-value": (FAILED, "gate", reasons.NOT_AVRO),
        "no-times": (FAILED, "gate", reasons.BAD_HEADERS),
        "no-hop": (FAILED, "gate", reasons.BAD_HEADERS),
        "strange": (FAILED, "gate", reasons.BAD_HEADERS),
        "elsewhere": (FAILED, "gate", reasons.BAD_HEADERS),
    }
    for message in released:
        headers.decode(message.headers())  # clients can read them all
    letters = bench.await_released(8, topic=topics.dead)
    assert {dict(m.headers())["spillway-reason"] for m in letters} == {b"not-avro", b"bad-headers"}
    found = [codec.Decoder().dead_letter(letter.value()) for letter in letters]
    assert [(each.stage, each.offset) for each in found if each.value == b"rubbish"] == [("gate", 0)]
    assert [each.reason for each in found if each.partition == 2] == [reasons.BAD_HEADERS]
    bench.stop(gate)


def hop(sequence, stage="a", partition=0):
    return ("spillway-hops", hops.encode((Hop(stage, 0, partition, sequence, 0),)))


TWO_SINKS = '  - {name: a, model: "m:M"}\n  - {name: b, model: "m:M", after: a}\n  - {name: c, model: "m:M", after: a}'


def test_all_sinks_make_one_outcome_of_their_outputs_also_when_one_was_heard_before_a_crash(make_gate):
    bench = make_gate(TWO_SINKS, "sinks: all")
    gate = bench.gate()
    for stage in ("c", "b", "b"):
        bench.report("both", 0, 1, stage=stage, outcome=Outcome(PREDICTION, outputs={"from": stage}, stage=stage))
    bench.report("half", 1, 1, stage="b", outcome=Outcome(PREDICTION, outputs={"from": "b"}, stage="b"))
    bench.report("half", 1, 1, stage="c", outcome=Outcome(DROPPED, reason="expired", stage="c"), lost=("c",))
    bench.producer.flush()
    released = bench.await_released(2)
    outcomes = {i: codec.Decoder().outcome(m.value()) for i, m in zip(ids(released), released, strict=True)}
    assert outcomes["both"].outputs == {"b.from": "b", "c.from": "c"}
    assert (outcomes["half"].kind, outcomes["half"].stage) == (DROPPED, "c")

    bench.report("slow", 0, 2, stage="b", outcome=Outcome(PREDICTION, outputs={"from": "b"}))
    for number in range(3, 51):  # what comes after it is released, and not again after the crash
        for stage in ("b", "c"):
            bench.report(f"r{number}", 0, number, stage=stage)
    bench.producer.flush()
    bench.await_released(50)
    gate.kill()
    gate.wait()
    gate = bench.gate()
    bench.report("slow", 0, 2, stage="c", outcome=Outcome(PREDICTION, outputs={"from": "c"}))
    bench.producer.flush()
    released = bench.await_released(51)
    assert sorted(ids(released)) == sorted(["both", "half", "slow", *(f"r{number}" for number in range(3, 51))])
    bench.stop(gate)
