"""Stages of a pipeline served in this process: joins, choices, queues, caches, and what a record may hold."""

import json

import numpy as np
import pytest

from spillway import Pipeline, testing
from spillway.agents.testing.service import Service
from spillway.lineage import headers, reasons
from spillway.lineage import metric_names as names
from spillway.lineage.keys import partition_for
from spillway.lineage.message import Outcome, Query
from spillway.lineage.values import codec

from . import served_models
from .served_models import RUNS

MODELS = served_models.__name__
DIAMOND = f"""
name: p
slo: 30s
partitions: 4
stages:
  - {{name: root, model: "{MODELS}:Pass"}}
  - {{name: left, model: "{MODELS}:Fragile", after: root}}
  - {{name: right, model: "{MODELS}:Square", after: root}}
  - {{name: last, model: "{MODELS}:Pass", after: [left, right], join: {{on_loss: ON_LOSS}}}}
"""
FRAGILE = f"""
name: p
slo: 30s
partitions: 1
limits: {{max_message_bytes: 1MiB}}
stages:
  - {{name: fragile, model: "{MODELS}:Fragile", inputs: {{x: {{dtype: float32, shape: [2]}}}}}}
"""
X = np.float32([1, 2])


def one(stage, partitions=4):
    return Pipeline.parse(f"name: p\nslo: 30s\npartitions: {partitions}\nstages:\n  - {{name: a, {stage}}}\n")


def some_raise(count):
    return [{"x": x, **({"act": "raise"} if x % 10 == 0 else {})} for x in range(count)]


def joined(outcome, x):
    assert outcome.outputs == {"left.y": x, "right.y": x * x, "right.id": outcome.request_id}
    assert {timing.stage for timing in outcome.timings} == {"root", "left", "right", "last"}
    assert outcome.flags == {}


def raised_in_left(outcome, lost):
    assert (outcome.kind, outcome.reason, outcome.stage) == ("failed", reasons.MODEL_RAISED, "left")
    assert lost[outcome.request_id] == ("last",)


def reported(pipeline):
    """By request id, which predecessors were said to be lost; each query has one report."""
    told = [headers.decode(record.headers) for record in pipeline.records("outcomes")]
    found = {each.request_id: each.lost for each in told}
    assert len(found) == len(told)
    return found


def all_is_committed(pipeline, **inputs):
    pipeline.sleep(2.0)
    ends = {
        stage: sum(pipeline._world.broker.end((f"p.{topic}", partition)) for partition in range(4))
        for stage, topic in inputs.items()
    }
    return ends == {stage: pipeline.metrics(stage)[names.COMMITTED_OFFSET] for stage in ends}


@pytest.mark.parametrize("on_loss", ["drop", "partial"])
def test_a_diamond_joins_what_belongs_together_and_hears_of_losses(on_loss):
    with testing.serve(Pipeline.parse(DIAMOND.replace("ON_LOSS", on_loss))) as pipeline:
        found = dict(pipeline.outcomes(some_raise(200)))
        lost = reported(pipeline)
        assert len(found) == len(lost) == 200
        for x, outcome in found.items():
            if x % 10:
                joined(outcome, x)
            elif on_loss == "partial":
                assert outcome.outputs == {"right.y": x * x, "right.id": outcome.request_id}
                assert outcome.flags == {"last": {"missing": ["left"]}}
            else:
                raised_in_left(outcome, lost)
        assert all_is_committed(pipeline, left="left", right="right", last="last")


def test_a_branch_that_is_away_costs_no_answers_but_those_whose_waiting_parts_retention_took(monkeypatch):
    """What waits keeps no payloads: they are read again when the branch comes; what it loses is heard of."""
    monkeypatch.setitem(Service.__init__.__kwdefaults__, "payload_bytes", 0)
    with testing.serve(Pipeline.parse(DIAMOND.replace("ON_LOSS", "drop"))) as pipeline:
        pipeline.stop("left")
        sent = [pipeline.submit(inputs, deadline=60.0) for inputs in some_raise(300)]
        pipeline.sleep(10.0)
        assert pipeline.metrics("last")[names.RECEIVED_TOTAL] == len(sent)
        broker = pipeline._world.broker
        broker.delete_before(("p.last", 0), broker.end(("p.last", 0)))
        pipeline.go_on("left")  # it comes when all that the other branch has done waits
        outcomes = [pending.result() for pending in sent]
        lost, partitions = reported(pipeline), {partition_for(pending.query.key, 4) for pending in sent}
        for x, (pending, outcome) in enumerate(zip(sent, outcomes, strict=True)):
            if partition_for(pending.query.key, 4) == 0:
                assert outcome.reason == reasons.PART_GONE
            elif x % 10 == 0:
                raised_in_left(outcome, lost)
            else:
                joined(outcome, x)
        assert partitions == {0, 1, 2, 3}
        assert all_is_committed(pipeline, left="left", right="right", last="last")


def test_a_choice_sends_to_the_chosen_successor_only():
    chooses = f"""
name: p
slo: 30s
partitions: 2
sinks: any
stages:
  - {{name: square, model: "{MODELS}:Square", choose: "{MODELS}:by_sign"}}
  - {{name: left, model: "{MODELS}:Square", after: square}}
  - {{name: right, model: "{MODELS}:Square", after: square}}
"""
    with testing.serve(Pipeline.parse(chooses)) as pipeline:
        found = {x: outcome.stage for x, outcome in pipeline.outcomes([{"x": x} for x in range(20)])}
        assert found == {x: "left" if x % 2 else "right" for x in range(20)}
        left, right = pipeline.records("left"), pipeline.records("right")
        assert (len(left), len(right)) == (10, 10)
        assert headers.decode(left[0].headers).path == {"square": ("left",)}


def test_what_models_say_of_their_answers_reaches_the_outcome_from_both_branches():
    tells = "\n".join(
        f'  - {{name: {name}, model: "{MODELS}:Tells", arguments: {{tell: {tell}}}, after: {after}}}'
        for name, tell, after in (
            ("open", "odd", "[]"), ("left", "sure", "open"), ("right", "variant", "open"),
            ("close", "odd", "[left, right]"),
        )
    )  # fmt: skip
    with testing.serve(Pipeline.parse(f"name: p\nslo: 30s\nstages:\n{tells}")) as pipeline:
        for x, outcome in pipeline.outcomes([{"x": x} for x in range(40)]):
            odd = {"mine": ["odd", x]}
            branches = {"left": {"confidence": 0.5}, "right": {"variant": "small", "default": x == 2}}
            assert outcome.flags == branches | ({"open": odd, "close": odd} if x % 2 else {})


def test_a_full_queue_stops_the_reading_and_loses_nothing():
    with testing.serve(one("emulated: {alpha: 2ms, beta: 0.2ms}, batching: {size: 8}, queue: 16")) as pipeline:
        sent = [pipeline.submit({"x": x}) for x in range(400)]
        deepest = 0.0
        while any(pending.outcome is None for pending in sent):
            pipeline.sleep(0.005)
            deepest = max(deepest, pipeline.metrics("a")[names.QUEUE_DEPTH])
        assert 8 <= deepest <= 16
        assert [pending.outcome.outputs["x"] for pending in sent] == list(range(400))
        assert len(pipeline.records("outcomes")) == len(sent)


def test_equal_queries_are_evaluated_once_and_each_is_answered():
    RUNS.clear()
    with testing.serve(one(f'model: "{MODELS}:Doubles", batching: {{size: 1}}, cache: {{bytes: 1MiB}}')) as pipeline:
        found = [outcome for _, outcome in pipeline.outcomes([{"x": number % 5} for number in range(200)])]
        assert [outcome.outputs["y"] for outcome in found] == [2 * (number % 5) for number in range(200)]
        assert RUNS["doubles"] == 5
        assert sorted(outcome.timings[0].batch for outcome in found) == [0] * 195 + [1] * 5


def test_a_batch_with_one_culprit_is_served_but_for_it():
    with testing.serve(one(f'model: "{MODELS}:Fragile", batching: {{size: 8, delay: 300ms}}', 1)) as pipeline:
        sent = [pipeline.submit({"x": x, **({"act": "raise"} if x == 3 else {})}) for x in range(8)]
        found = [(pending.result().kind, pending.result().outputs.get("y")) for pending in sent]
        assert found == [("failed", None) if x == 3 else ("prediction", x) for x in range(8)]
        assert pipeline.metrics("a")[names.BATCHES_TOTAL] == 1


def test_any_kafka_client_can_ask_in_json_and_offline():
    """An offline query is run when nobody else waits, its deadline over."""
    told = [("content-type", b"application/json"), ("x-accept", b"application/json")]
    offline = [("x-request-id", b"any"), ("x-priority", b"offline"), *told]
    with testing.serve(one(f'model: "{MODELS}:Pass", batching: {{size: 1}}, policy: pard')) as pipeline:
        pipeline.stop("a")
        pipeline.produce("ingress", json.dumps({"x": 1}).encode(), headers=offline)
        pipeline.sleep(60.0)
        pipeline.produce("ingress", json.dumps({"x": 2}).encode(), headers=[("x-request-id", b"on"), *told])
        pipeline.go_on("a")
        pipeline.sleep(2.0)
        found = {headers.identify(record.headers): record for record in pipeline.records("egress")}
        assert {name: json.loads(record.value)["outputs"] for name, record in found.items()} == {
            "any": {"x": 1},
            "on": {"x": 2},
        }
        assert pipeline.metrics("a")[names.OFFLINE_QUERIES_TOTAL] == 1


# name -> (what to send beside or instead of a good query, the reason)
WIRE = {
    "not-avro": ({"value": b"hello"}, reasons.NOT_AVRO),
    "no-value": ({"value": None}, reasons.NOT_AVRO),
    "unknown-schema": ({"value": b"\xc3\x01" + b"12345678" + b"body"}, reasons.UNKNOWN_SCHEMA),
    "cut": ({"value": codec.encode_query(Query({"x": X}))[:-3]}, reasons.CORRUPT),
    "an-outcome": ({"value": codec.encode_outcome(Outcome("failed", reason="x"))}, reasons.UNKNOWN_SCHEMA),
    "wrong-dtype": ({"x": np.float64([1, 2])}, reasons.BAD_INPUT),
    "wrong-shape": ({"x": np.float32([1])}, reasons.BAD_INPUT),
    "missing-input": ({"value": codec.encode_query(Query({"y": X}))}, reasons.BAD_INPUT),
    "too-large": ({"pad": b"x" * 1_048_000}, None),
    "over-a-limit": ({"pad": b"x" * 1_048_576}, reasons.TOO_LARGE),
    "no-deadline": ({"spillway-deadline": None}, None),  # the pipeline's SLO, then
    "absurd-sent": ({"spillway-sent": b"tomorrow"}, reasons.BAD_HEADERS),
    "no-utf8": ({b"\xff\xfex": b"1"}, reasons.BAD_HEADERS),
    "huge-key": ({"key": b"k" * 10_000}, reasons.TOO_LARGE),
    "raise": ({"act": "raise"}, reasons.MODEL_RAISED),
    "short": ({"act": "short"}, reasons.WRONG_RESULT_COUNT),
    "text": ({"act": "text"}, reasons.BAD_RESULT),
    "object": ({"act": "object"}, reasons.BAD_RESULT),
    "huge": ({"act": "huge"}, reasons.BAD_RESULT),
}


def send(pipeline, name, changes):
    now = int(pipeline.now * 1e6)
    pairs = dict(headers.encode(headers.Headers(name, now, now + 10**7)))
    pairs |= {header: value for header, value in changes.items() if isinstance(header, bytes) or "-" in header}
    value = codec.encode_query(
        Query({"x": X} | {name: value for name, value in changes.items() if name in {"x", "pad", "act"}})
    )
    pipeline.produce(
        "ingress",
        changes.get("value", value),
        key=changes.get("key", name.encode()),
        headers=[(header, value) for header, value in pairs.items() if value is not None],
    )


def test_every_kind_of_poison_fails_alone_and_is_kept():
    expected = {}
    with testing.serve(Pipeline.parse(FRAGILE)) as pipeline:
        for name, (changes, reason) in WIRE.items():
            send(pipeline, name, changes)
            send(pipeline, f"after-{name}", {})
            expected |= {name: reason or "", f"after-{name}": ""}
        for changes in ({"x-request-id": None}, {"x-request-id": b"\xff\xfe", "value": b"junk"}):
            send(pipeline, "nobody", changes)
        pipeline.produce("ingress", codec.encode_query(Query({"x": X})))
        send(pipeline, "last", {})
        pipeline.sleep(5.0)
        decoder = codec.Decoder()
        reports = pipeline.records("outcomes")
        assert {headers.identify(one.headers): decoder.outcome(one.value).reason for one in reports} == {
            **expected, "last": ""
        }  # fmt: skip
        assert len(reports) == len(expected) + 1
        letters = [(dict(one.headers), decoder.dead_letter(one.value)) for one in pipeline.records("dead")]
        by_id = {told["x-request-id"].decode(): letter for told, letter in letters if "x-request-id" in told}
        assert by_id.keys() == {name for name, reason in expected.items() if reason}
        assert len(letters) == len(by_id) + 3
        for told, letter in letters:
            assert told["spillway-reason"].decode() == letter.reason
            assert (letter.topic, letter.stage) == ("p.ingress", "fragile")
        assert by_id["not-avro"].value == b"hello"
        assert dict(by_id["absurd-sent"].headers)[b"spillway-sent"] == b"tomorrow"
        assert (b"\xff\xfex", b"1") in by_id["no-utf8"].headers
        assert "cannot stand this one" in by_id["raise"].text
        assert pipeline.metrics("fragile")[names.DEAD_LETTERS_TOTAL] == len(letters)
        assert all_is_committed(pipeline, fragile="ingress")
