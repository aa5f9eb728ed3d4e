"""A record in, a message out: what travels on, and what makes a record poison."""

import dataclasses

import pytest

from spillway.agents.core.actions import Emit, EmitKind
from spillway.agents.core.request import Loss, Request
from spillway.agents.metrics import StageMetrics
from spillway.agents.run.emission import Emission
from spillway.agents.run.intake import Intake, PoisonError
from spillway.lineage import headers, reasons, trace
from spillway.lineage.hops import Hop
from spillway.lineage.limits import Limits
from spillway.lineage.marks import Mark, Version
from spillway.lineage.message import Outcome, Query, StageTiming
from spillway.lineage.ports import Record
from spillway.lineage.values import codec

APPENDED_MS = 1_700_000_000_000
SENT_US = APPENDED_MS * 1000
QUERY = codec.encode_query(Query({"x": 1}, {"p": 2}, [StageTiming("root", 0.1, 0.2, 0.3, 4)]))
LOST = codec.encode_outcome(Outcome("dropped", reason="expired", stage="root"))


def record(value=QUERY, *, key=b"k", log_append=0, extra_pairs=(), **told):
    came = headers.Headers(
        "r1", told.pop("sent_us", SENT_US), told.pop("deadline_us", SENT_US + 400_000),
        trace=trace.new_trace("r1"), extra=[("x-tenant", b"a")], **told,
    )  # fmt: skip
    pairs = (*headers.encode(came), *extra_pairs)
    return Record("p.in", 3, 7, APPENDED_MS, log_append, key, value, pairs)


def intake(*predecessors, metrics=None, places=()):
    return Intake(
        predecessors=predecessors,
        decoder=codec.Decoder(),
        signature=None,
        slo=0.4,
        metrics=metrics or StageMetrics("p", "s", 0),
        places=places,
    )


HOP = Hop("a", 0, 3, 5, 4)


FLAGGED = codec.encode_query(Query({"x": 1}, flags={"a": {"default": True}}))


def test_a_root_takes_a_query_and_no_claims_about_hops():
    delivery = intake().delivery(record(hop=HOP, path={"a": ("b",)}, lost=("a",)))
    assert (delivery.request_id, delivery.partition, delivery.offset) == ("r1", 3, 7)
    assert (delivery.predecessor, delivery.hop, delivery.path, delivery.lost) == ("", None, {}, ())
    assert delivery.deadline == pytest.approx(SENT_US / 1e6 + 0.4)
    assert delivery.appended == APPENDED_MS / 1000
    assert delivery.payload.message.inputs == {"x": 1}


def test_flags_are_a_stages_word_and_not_a_clients():
    assert intake().delivery(record(FLAGGED)).payload.message.flags == {}
    assert intake("a").delivery(record(FLAGGED, hop=HOP)).payload.message.flags == {"a": {"default": True}}


def test_what_memory_needs_of_a_record_is_the_same_without_reading_all_of_it():
    for taking, came in ((intake(), record()), (intake("a"), record(hop=HOP))):
        whole, remembered = taking.envelope(came), taking.remembered(came)
        for name in ("request_id", "partition", "offset", "predecessor", "hop", "lost", "appended"):
            assert getattr(remembered, name) == getattr(whole, name)
        assert remembered.payload is None  # the record is not kept
    assert intake().remembered(dataclasses.replace(record(), headers=())) is None
    assert intake("a").remembered(record()).request_id == "r1"  # poison, with an id


def test_a_sender_whose_clock_is_off_is_judged_by_the_brokers():
    metrics = StageMetrics("p", "s", 0)
    off = record(log_append=1, sent_us=SENT_US - 5_000_000, deadline_us=SENT_US - 5_000_000 + 100_000)
    delivery = intake(metrics=metrics).delivery(off)
    assert delivery.sent == pytest.approx(APPENDED_MS / 1000)
    assert delivery.deadline == pytest.approx(APPENDED_MS / 1000 + 0.1)
    assert metrics.clock_skew == 1


def test_a_later_stage_knows_its_sender():
    delivery = intake("a", "b").delivery(record(hop=HOP, path={"a": ("s",)}))
    assert (delivery.predecessor, delivery.hop, delivery.path) == ("a", HOP, {"a": ("s",)})


def test_a_stage_may_not():
    came = record(hop=HOP)
    unsent = tuple(pair for pair in came.headers if pair[0] != headers.SENT)
    with pytest.raises(PoisonError, match="spillway-sent is missing"):
        intake("a").delivery(dataclasses.replace(came, headers=unsent))


JSON = b'{"x": 1, "t": {"dtype": "float32", "data": [1, 2]}}'
CONTENT_TYPE = ((headers.CONTENT_TYPE, b"application/json"),)


def test_a_client_may_ask_in_json():
    inputs = intake().delivery(record(JSON, extra_pairs=CONTENT_TYPE)).payload.message.inputs
    assert inputs["x"] == 1
    assert inputs["t"].tolist() == [1.0, 2.0]


JSON_TYPES = [
    b"application/json",
    b"application/json; charset=utf-8",
    b"Application/JSON ;q=1",
    b"application/json;x=" + b"x" * 9_000,
    b"text/x, APPLICATION/json",
]
OTHERS = [b"", b"application/jsonl", b"text/json", b"application/json-seq; application/json", b"application/avro"]


@pytest.mark.parametrize("said", [*JSON_TYPES, *OTHERS])
def test_json_is_told_by_its_media_type_alone(said):
    came = record(JSON, extra_pairs=[(headers.CONTENT_TYPE, said)])
    try:
        message = intake().delivery(came).payload.message
    except PoisonError as error:
        message = None
        assert error.reason == reasons.NOT_AVRO  # noqa: PT017
    assert (message is not None) == (said in JSON_TYPES)


@pytest.mark.parametrize("accept", [*JSON_TYPES, *OTHERS])
@pytest.mark.parametrize(
    "came",
    [
        record(b"text"),
        record(sent_us=SENT_US, extra_pairs=[(headers.SENT, b"yesterday")]),
        record(key=b"k" * 5000),
        record(extra_pairs=[(b"\xff", b"")]),
        record(extra_pairs=[("x-large", b"x" * headers.MAX_EXTRA_BYTES)]),
    ],
)
def test_whoever_asks_for_json_is_told_in_json_that_it_was_refused(came, accept):
    came = dataclasses.replace(came, headers=(*came.headers, (headers.ACCEPT, accept)))
    with pytest.raises(PoisonError) as caught:
        intake().delivery(came)
    work = caught.value.delivery
    loss = Emit(EmitKind.OUTCOME, None, HOP, {}, None, work, None, loss=Loss("failed", "r"))
    sent = Emission("p", "s", Limits(), lambda: 11.0).message(loss)
    assert bool(headers.json_asked(sent.headers)) == (accept in JSON_TYPES)


@pytest.mark.parametrize(("place", "known"), [(("s", 1), True), (("s", 2), False), (("other", 0), False)])
def test_a_record_rests_on_shards_that_there_are(place, known):
    hop = Hop("a", 0, 3, 5, 4, (Mark(*place, Version(1, 1)),))
    taking = intake("a", places=[("s", 0), ("s", 1)])
    if known:
        assert taking.delivery(record(hop=hop)).hop == hop
        return
    with pytest.raises(PoisonError, match=r"depends on .* a shard that this pipeline does not have") as caught:
        taking.delivery(record(hop=hop))
    assert (caught.value.reason, caught.value.delivery.request_id) == (reasons.BAD_HEADERS, "r1")


def test_a_tombstone_is_an_outcome():
    delivery = intake("a", "b").delivery(record(LOST, hop=HOP, lost=("a",)))
    assert delivery.lost == ("a",)
    assert delivery.payload.message.reason == "expired"


@pytest.mark.parametrize(
    ("predecessors", "poison", "reason"),
    [
        ((), record(None), reasons.NOT_AVRO),
        ((), record(b"text"), reasons.NOT_AVRO),
        ((), record(LOST), reasons.UNKNOWN_SCHEMA),
        ((), record(key=b"k" * 5000), reasons.TOO_LARGE),
        ((), record(extra_pairs=[(b"\xff", b"")]), reasons.BAD_HEADERS),
        (("a",), record(), reasons.BAD_HEADERS),
        (("b",), record(hop=HOP), reasons.BAD_HEADERS),
        (("a", "b"), record(QUERY, hop=HOP, lost=("a",)), reasons.UNKNOWN_SCHEMA),
    ],
)
def test_poison_keeps_the_id_where_there_is_one(predecessors, poison, reason):
    with pytest.raises(PoisonError) as caught:
        intake(*predecessors).delivery(poison)
    assert caught.value.reason == reason
    assert caught.value.delivery.request_id == "r1"
    assert caught.value.delivery.payload.record is poison


def test_a_record_without_an_id_is_nobodys():
    bare = Record("p.in", 3, 7, APPENDED_MS, 0, None, QUERY, ())
    with pytest.raises(PoisonError) as caught:
        intake().delivery(bare)
    assert caught.value.delivery.request_id == ""


def emit(kind, delivery, *, destination=None, payload=None, lost=(), loss=None, as_request=True):
    source = delivery
    if as_request:
        source = Request("r1", 3, delivery.sent, delivery.deadline, 10.0, (delivery,), {}, 10.5)
    return Emit(kind, destination, Hop("s", 0, 3, 7, 6), {"s": ("t",)}, payload, source, None, lost, loss)


EMISSION = Emission("p", "s", Limits(), lambda: 11.0)


def test_a_result_keeps_identity_partition_key_and_trace():
    delivery = intake().delivery(record())
    out = EMISSION.message(emit(EmitKind.RESULT, delivery, destination="t", payload=b"value"))
    assert (out.topic, out.partition, out.key, out.value) == ("p.t", 3, b"k", b"value")
    told = headers.decode(out.headers)
    assert (told.request_id, told.hop, told.path, told.extra) == (
        "r1", Hop("s", 0, 3, 7, 6), {"s": ("t",)}, [("x-tenant", b"a")],
    )  # fmt: skip
    assert told.trace == delivery.payload.headers.trace


def test_a_loss_tells_kind_reason_stage_and_what_was_done_so_far():
    loss = Loss("dropped", "expired", "too late")
    out = EMISSION.message(emit(EmitKind.OUTCOME, intake().delivery(record()), lost=("s",), loss=loss))
    assert out.topic == "p.outcomes"
    outcome = codec.Decoder().outcome(out.value)
    assert (outcome.kind, outcome.reason, outcome.text, outcome.stage) == ("dropped", "expired", "too late", "s")
    assert [(timing.stage, timing.queued) for timing in outcome.timings] == [("root", 0.1), ("s", 0.5)]
    assert headers.decode(out.headers).lost == ("s",)


def test_another_stages_loss_is_passed_on_as_it_came():
    tombstone = intake("a", "b").delivery(record(LOST, hop=HOP, lost=("a",)))
    passed = emit(
        EmitKind.TOMBSTONE, tombstone, destination="t", payload=tombstone.payload, lost=("s",), as_request=False
    )
    out = EMISSION.message(passed)
    assert (out.topic, out.value) == ("p.t", LOST)


def test_a_dead_letter_is_the_record_and_why():
    strange = record(b"junk", extra_pairs=[(b"\xff\xfe", None)])
    with pytest.raises(PoisonError) as caught:
        intake().delivery(strange)
    loss = Loss("failed", "not-avro", "no marker \ud800")
    out = EMISSION.message(emit(EmitKind.DEAD_LETTER, caught.value.delivery, loss=loss, as_request=False))
    assert (out.topic, out.partition, out.key) == ("p.dead", 3, b"k")
    letter = codec.Decoder().dead_letter(out.value)
    assert (letter.topic, letter.partition, letter.offset, letter.key, letter.value) == ("p.in", 3, 7, b"k", b"junk")
    assert (b"\xff\xfe", None) in letter.headers
    told = dict(out.headers)
    assert (told["x-request-id"], told["spillway-reason"], told["spillway-stage"]) == (b"r1", b"not-avro", b"s")


def test_a_part_whose_value_is_not_at_hand_is_the_same_without_its_payload():
    taking, came = intake("a", "b"), record(hop=HOP)
    part, whole = taking.part(came), taking.delivery(came)
    assert (part.dropped, part.payload) == (True, None)
    assert dataclasses.replace(part, dropped=False, payload=whole.payload, size=whole.size) == whole
