"""What the gate makes of records, and of what its core releases."""

import json
from dataclasses import replace

import pytest

from spillway.agents.core.outcomes import Release
from spillway.agents.live.clock import Clock
from spillway.agents.run.gate_wire import GateWire, Poison
from spillway.lineage import headers, reasons
from spillway.lineage.hops import Hop
from spillway.lineage.limits import Limits
from spillway.lineage.marks import Mark, Version
from spillway.lineage.message import FAILED, PREDICTION, Outcome, Query
from spillway.lineage.ports import UNREADABLE, Record
from spillway.lineage.values import codec
from spillway.lineage.values.codec import Decoder

LIMITS = Limits(max_message_bytes=2_000)
SAID = headers.Headers("r1", 1_000_000, 2_500_000, Hop("a", 0, 3, 7, 5), {"a": ("b",)}, (), None, [("x-user", b"u")])
ASKED = [*SAID.extra, (headers.ACCEPT, b"application/json")]


GOOD = codec.encode_outcome(Outcome(PREDICTION, outputs={"a": 1}))


PAIRS = tuple(headers.encode(SAID))


def reported(pairs=PAIRS, body=GOOD):
    """A record of the outcomes; without pairs, its headers cannot be told."""
    return Record("p.outcomes", 3, 41, 1_700, True, b"k", body, UNREADABLE if pairs is None else tuple(pairs))


def wire(relearn=bool):
    return GateWire(("a", "b"), Decoder(LIMITS), LIMITS, Clock(), relearn)


def release(delivery, outcome=None):
    own = outcome is not None
    return Release("r1", 3, outcome or delivery.payload.outcome, delivery, own, (delivery,), (41,))


def test_a_message_becomes_a_delivery_and_goes_on_as_the_very_bytes_it_was():
    record = reported()
    delivery = wire().read(record)
    assert (delivery.request_id, delivery.partition, delivery.offset) == ("r1", 3, 41)
    assert (delivery.sent, delivery.deadline, delivery.appended) == (1.0, 2.5, 1.7)
    assert (delivery.predecessor, delivery.hop, delivery.path) == ("a", SAID.hop, {"a": ("b",)})
    assert delivery.payload.outcome.outputs == {"a": 1}
    assert delivery.payload.headers == record.headers
    assert wire().message(release(delivery))[0] is record.value


@pytest.mark.parametrize(("place", "known"), [(("s", 1), True), (("s", 2), False), (("other", 0), False)])
def test_a_message_rests_on_shards_that_there_are(place, known):
    hop = Hop("a", 0, 3, 7, 5, (Mark(*place, Version(1, 1)),))
    record = reported(headers.encode(headers.Headers("r1", 1_000_000, 2_500_000, hop)))
    taken = GateWire(("a", "b"), Decoder(LIMITS), LIMITS, Clock(), places=[("s", 0), ("s", 1)]).read(record)
    if known:
        assert taken.hop == hop
    else:
        assert (taken.reason, taken.stand_in.request_id) == (reasons.BAD_HEADERS, "r1")
        assert taken.text == f"depends on {hop.marks[0]}, a shard that this pipeline does not have"


def test_an_envelope_is_read_without_its_value():
    delivery = wire().envelope(reported(body=b"rubbish"))
    assert delivery.request_id == "r1"
    assert delivery.payload.outcome is None


def test_what_was_released_is_known_by_its_id_and_time_alone():
    assert GateWire.released(reported(body=None)) == ("r1", 1.0)
    for pairs in (None, [], [("x-request-id", b"r1")], [("x-request-id", b"\xff"), ("spillway-sent", b"1")]):
        assert GateWire.released(reported(pairs=pairs)) is None


def test_the_gates_own_outcome_is_encoded():
    delivery = wire().read(reported())
    value = wire().message(release(delivery, Outcome(PREDICTION, outputs={"b.a": 2})))[0]
    assert Decoder(LIMITS).outcome(value).outputs == {"b.a": 2}


def test_an_outcome_that_has_become_too_large_fails_instead():
    delivery = wire().read(reported())
    value = wire().message(release(delivery, Outcome(PREDICTION, outputs={"b.a": bytes(3_000)})))[0]
    outcome = Decoder(LIMITS).outcome(value)
    assert (outcome.kind, outcome.reason, outcome.stage) == (FAILED, reasons.TOO_LARGE, "gate")


@pytest.mark.parametrize("extra", [[], ASKED])
def test_an_outcome_is_sent_without_its_flags_rather_than_not_at_all(extra):
    record = reported(headers.encode(replace(SAID, extra=extra)))
    outcome = Outcome(PREDICTION, outputs={"b.a": 2}, flags={"s": {"mine": "m" * 1_990}})
    value = wire().message(release(wire().read(record), outcome))[0]
    told = Decoder(LIMITS).released(value)
    assert (told.kind, told.outputs, told.flags) == (PREDICTION, {"b.a": 2}, {"gate": {"flags_cut": True}})


@pytest.mark.parametrize(
    ("record", "reason", "request_id"),
    [
        (reported(body=b"rubbish"), reasons.NOT_AVRO, "r1"),
        (reported(body=None), reasons.NOT_AVRO, "r1"),
        (reported(body=codec.encode_query(Query({}))), reasons.UNKNOWN_SCHEMA, "r1"),
        (reported(body=b"\xc3\x01" + bytes(2_000)), reasons.TOO_LARGE, "r1"),
        (reported(pairs=None), reasons.BAD_HEADERS, None),
        (reported(pairs=[]), reasons.BAD_HEADERS, None),
        (reported(pairs=[("x-request-id", b"r1")]), reasons.BAD_HEADERS, "r1"),
        (reported(pairs=headers.encode(headers.Headers("r1", 1, 2))), reasons.BAD_HEADERS, "r1"),
        (reported(pairs=headers.encode(headers.Headers("r1", 1, 2, Hop("c", 0, 3, 7, 5)))), reasons.BAD_HEADERS, "r1"),
        (reported(pairs=headers.encode(headers.Headers("r1", 1, 2, Hop("a", 0, 4, 7, 5)))), reasons.BAD_HEADERS, "r1"),
    ],
)
def test_what_cannot_be_read_fails_its_query_where_that_is_known(record, reason, request_id):
    poison = wire().read(record)
    assert isinstance(poison, Poison)
    assert poison.reason == reason
    if request_id is None:
        assert poison.stand_in is None
    else:
        assert poison.stand_in.request_id == request_id
        outcome = Decoder(LIMITS).outcome(wire().message(release(poison.stand_in))[0])
        assert (outcome.kind, outcome.reason, outcome.stage) == (FAILED, reason, "gate")
        headers.decode(poison.stand_in.payload.headers)  # the client's side can read them
    value, pairs = wire().letter(poison)
    letter = Decoder(LIMITS).dead_letter(value)
    assert (letter.topic, letter.partition, letter.offset, letter.stage) == ("p.outcomes", 3, 41, "gate")
    assert dict(pairs)["spillway-reason"] == reason.encode()
    assert dict(pairs).get("x-request-id") == (request_id and request_id.encode())


def test_a_dead_letter_that_would_be_too_large_leaves_the_message_out_and_says_so():
    poison = wire().read(reported(body=bytes(200_000)))
    letter = Decoder(LIMITS).dead_letter(wire().letter(poison)[0])
    assert letter.value is None
    assert "without key, value and headers" in letter.text


def test_an_unknown_schema_is_looked_for_once():
    asked = []

    def relearn():
        asked.append(1)
        return True

    unknown = b"\xc3\x01" + bytes(8)
    assert wire(relearn).read(reported(body=unknown)).reason == reasons.UNKNOWN_SCHEMA
    assert len(asked) == 1


def test_an_outcome_is_in_json_where_its_query_asked_for_that():
    record = reported(headers.encode(replace(SAID, extra=ASKED)))
    value, pairs = wire().message(release(wire().read(record)))
    told = json.loads(value)
    assert (told["request_id"], told["kind"], told["outputs"]) == ("r1", PREDICTION, {"a": 1})
    assert told["latency_ms"] > 0
    assert pairs == (*record.headers, (headers.CONTENT_TYPE, b"application/json"))
    assert Decoder().released(value).outputs == {"a": 1}


def test_an_outcome_that_is_too_large_in_json_fails_instead():
    large = codec.encode_outcome(Outcome(PREDICTION, outputs={"a": bytes(1_800)}))
    record = reported(headers.encode(replace(SAID, extra=ASKED)), large)
    told = json.loads(wire().message(release(wire().read(record)))[0])
    assert (told["kind"], told["reason"]) == (FAILED, reasons.TOO_LARGE)


@pytest.mark.parametrize("accept", [b"application/json", b"Application/Json; q=1", b"text/html, application/json"])
@pytest.mark.parametrize(
    "record",
    [
        reported(),
        reported(body=b"not an outcome"),
        reported(body=None),
        reported(pairs=[pair for pair in headers.encode(SAID) if pair[0] != headers.SENT]),
        reported(headers.encode(replace(SAID, hop=None))),
        reported(body=codec.encode_outcome(Outcome("dropped", reason="expired", stage="a"))),
    ],
)
def test_whoever_asks_for_json_is_answered_in_json_whatever_became_of_the_query(record, accept):
    reading = wire()
    taken = reading.read(replace(record, headers=(*record.headers, (headers.ACCEPT, accept))))
    delivery = taken.stand_in if isinstance(taken, Poison) else taken
    value, pairs = reading.message(release(delivery))
    assert json.loads(value)["request_id"] == "r1"
    assert (headers.CONTENT_TYPE, b"application/json") in pairs
