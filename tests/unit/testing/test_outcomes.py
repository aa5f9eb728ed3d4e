"""What the gate of a pipeline in memory makes of reports: of several sinks, of crashes, and of what cannot be read."""

import pytest

from spillway import Pipeline
from spillway.lineage import headers, hops, reasons
from spillway.lineage.hops import Hop
from spillway.lineage.message import DROPPED, FAILED, PREDICTION, Outcome
from spillway.lineage.values import codec

MORE = "  - {name: b, emulated: {alpha: 1ms}, after: a}\n  - {name: c, emulated: {alpha: 1ms}, after: a}\n"


@pytest.fixture
def gate(served):
    """Serve a gate whose stages the test plays."""

    def serve(more=""):
        stages = "stages:\n  - {name: a, emulated: {alpha: 1ms}}\n" + more
        return served(Pipeline.parse(f"name: p\nslo: 60s\npartitions: 3\n{'sinks: all' if more else ''}\n{stages}"))

    return serve


def report(pipeline, request_id, sequence, stage="a", outcome=None, **told):
    now = int(pipeline.now * 1e6)
    said = headers.Headers(request_id, now, now + 60_000_000, Hop(stage, 0, 0, sequence, 0), **told)
    value = codec.encode_outcome(outcome or Outcome(PREDICTION, outputs={"from": stage}, stage=stage))
    pipeline.produce("outcomes", value, key=request_id.encode(), headers=headers.encode(said), partition=0)


def released(pipeline):
    """The outcomes by request id, each of which has come once."""
    pipeline.sleep(2.0)
    found = [(headers.decode(one.headers).request_id, one.value) for one in pipeline.records("egress")]
    assert len(dict(found)) == len(found)
    return {request_id: codec.Decoder().outcome(value) for request_id, value in found}


def test_all_sinks_make_one_outcome_of_their_outputs_also_when_one_was_heard_before_a_crash(gate):
    pipeline = gate(MORE)
    for stage in ("c", "b", "b"):
        report(pipeline, "both", 1, stage)
    report(pipeline, "half", 2, "b")
    report(pipeline, "half", 2, "c", Outcome(DROPPED, reason="expired", stage="c"), lost=("c",))
    outcomes = released(pipeline)
    assert outcomes["both"].outputs == {"b.from": "b", "c.from": "c"}
    assert (outcomes["half"].kind, outcomes["half"].stage) == (DROPPED, "c")

    report(pipeline, "slow", 3, "b")
    rest = {f"r{number}" for number in range(4, 51)}  # what comes after it is released, and not again after the crash
    for number in range(4, 51):
        for stage in ("b", "c"):
            report(pipeline, f"r{number}", number, stage)
    assert released(pipeline).keys() == {"both", "half"} | rest
    pipeline.kill("gate")
    pipeline.sleep(5.0)
    report(pipeline, "slow", 3, "c")
    assert released(pipeline).keys() == {"both", "half", "slow"} | rest


def test_what_cannot_be_read_is_kept_with_its_reason_and_fails_its_query(gate):
    pipeline = gate()

    def hop(sequence, stage="a", partition=0):
        return ("spillway-hops", hops.encode((Hop(stage, 0, partition, sequence, 0),)))

    now = b"%d" % (pipeline.now * 1e6)
    times = [("spillway-sent", now), ("spillway-deadline", now)]
    strange = {
        "no-avro": ([*times, hop(0)], b"rubbish", reasons.NOT_AVRO),
        "no-value": ([*times, hop(1)], None, reasons.NOT_AVRO),
        "no-times": ([], b"any", reasons.BAD_HEADERS),
        "no-hop": (times, b"any", reasons.BAD_HEADERS),
        "strange": ([*times, hop(2, stage="stranger")], b"any", reasons.BAD_HEADERS),
        "elsewhere": ([*times, hop(2, partition=1)], b"any", reasons.BAD_HEADERS),
    }
    for name, (pairs, value, _) in strange.items():
        pipeline.produce("outcomes", value, headers=[("x-request-id", name.encode()), *pairs], partition=0)
    pipeline.produce("outcomes", b"nobody's", partition=0)
    report(pipeline, "fine", 3)
    outcomes = released(pipeline)
    assert outcomes.pop("fine").kind == PREDICTION
    assert {name: (outcome.kind, outcome.stage, outcome.reason) for name, outcome in outcomes.items()} == {
        name: (FAILED, "gate", reason) for name, (_, _, reason) in strange.items()
    }
    letters = [(codec.Decoder().dead_letter(one.value), dict(one.headers)) for one in pipeline.records("dead")]
    assert len(letters) == len(strange) + 1
    assert all(letter.reason == told["spillway-reason"].decode() for letter, told in letters)
    assert [(letter.stage, letter.offset) for letter, _ in letters if letter.value == b"rubbish"] == [("gate", 0)]
