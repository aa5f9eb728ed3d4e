import enum
import io

import avro.io
import numpy as np
import pytest
from hypothesis import given

from spillway.lineage import reasons
from spillway.lineage.errors import WireError
from spillway.lineage.limits import Limits
from spillway.lineage.message import FAILED, PREDICTION, DeadLetter, Outcome, Query, StageTiming
from spillway.lineage.schemas import (
    DEAD_LETTER,
    HEADER_BYTES,
    MARKER,
    OUTCOME,
    OWN_FINGERPRINTS,
    OWN_PARSED,
    QUERY,
    SchemaBook,
)
from spillway.lineage.values.codec import Decoder, encode_dead_letter, encode_outcome, encode_query
from spillway.lineage.values.resolution import resolve

from .hostile_bytes import refusal
from .strategies import dead_letters, outcomes, queries, same

DECODER = Decoder()
LIMITS = Limits()


@given(queries)
def test_a_query_comes_back_as_it_was_by_our_decoder_and_by_fastavro(query):
    message = encode_query(query)
    assert same(query, DECODER.query(message))
    assert same(query, resolve(SchemaBook().writer(OWN_FINGERPRINTS[QUERY]), message, HEADER_BYTES, LIMITS))


@given(outcomes)
def test_an_outcome_comes_back_as_it_was_by_our_decoder_and_by_fastavro(outcome):
    message = encode_outcome(outcome)
    assert same(outcome, DECODER.outcome(message))
    assert same(outcome, DECODER.message(message))
    assert same(outcome, resolve(SchemaBook().writer(OWN_FINGERPRINTS[OUTCOME]), message, HEADER_BYTES, LIMITS))


@given(dead_letters)
def test_a_dead_letter_comes_back_as_it_was(letter):
    assert DECODER.dead_letter(encode_dead_letter(letter)) == letter


def avro_body(name, record):
    stream = io.BytesIO()
    avro.io.DatumWriter(OWN_PARSED[name]).write(record, avro.io.BinaryEncoder(stream))
    return MARKER + OWN_FINGERPRINTS[name] + stream.getvalue()


def test_avro_and_fastavro_write_the_same_bytes():
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    timing = StageTiming("detect", 0.1, 0.2, 0.3, 4, "cnn", "2", 1_800_000_000_000_000)
    plain_timing = {name: getattr(timing, name) for name in StageTiming.__slots__}
    query = Query({"x": array, "s": "é", "l": [None, {"k": 2.5}]}, {"b": b"\0\1"}, [timing], {"s": {"sure": 0.5}})
    tensor = {"dtype": "int16", "shape": [2, 3], "data": array.tobytes()}
    # No ints or bools in unions here: avro guesses the branch by the value, and takes both for doubles.
    items = [{"of": None}, {"of": {"k": {"of": 2.5}}}]
    assert encode_query(query) == avro_body(
        QUERY,
        {
            "inputs": {"x": {"of": tensor}, "s": {"of": "é"}, "l": {"of": items}},
            "parameters": {"b": {"of": {"data": b"\0\1"}}},
            "timings": [plain_timing],
            "flags": {"s": {"of": {"sure": {"of": 0.5}}}},
        },
    )
    outcome = Outcome(FAILED, {}, "corrupt", "why", "detect", [timing], {"by": "default"})
    assert encode_outcome(outcome) == avro_body(
        OUTCOME,
        {
            "kind": "failed",
            "outputs": {},
            "reason": "corrupt",
            "text": "why",
            "stage": "detect",
            "timings": [plain_timing],
            "flags": {"by": {"of": "default"}},
        },
    )
    letter = DeadLetter("t", 3, 2**40, "s", "r", "text", 5, None, b"v", [(b"\xff", None)])
    assert encode_dead_letter(letter) == avro_body(
        DEAD_LETTER,
        {name: getattr(letter, name) for name in DeadLetter.__slots__} | {"headers": [{"key": b"\xff", "value": None}]},
    )


@given(queries)
def test_avro_reads_what_we_write(query):
    message = encode_query(query)
    stream = io.BytesIO(message[HEADER_BYTES:])
    record = avro.io.DatumReader(OWN_PARSED[QUERY]).read(avro.io.BinaryDecoder(stream))
    assert list(record["inputs"]) == list(query.inputs)
    assert not stream.read()


def test_blocks_with_a_size_and_in_several_parts_are_read():
    # As Java's blocking encoder writes: a negative count, the block's bytes, and more than one block.
    entry = b"\x02a\x00"
    body = b"\x01\x06" + entry + b"\x02\x02b\x02\x01\x00"
    body += b"\x00" + b"\x00" + b"\x00"
    message = MARKER + OWN_FINGERPRINTS[QUERY] + body
    assert DECODER.query(message) == Query({"a": None, "b": True})
    schema = SchemaBook().writer(OWN_FINGERPRINTS[QUERY])
    assert resolve(schema, message, HEADER_BYTES, LIMITS) == Query({"a": None, "b": True})


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Inputs(dict):
    pass


@pytest.mark.parametrize(
    ("given_value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (np.int8(-3), -3),
        (np.uint64(7), 7),
        (np.bool_(1), True),
        (np.str_("a\0"), "a\0"),
        (np.bytes_(b"a\0"), b"a\0"),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        ((1, 2), [1, 2]),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"ab"), b"ab"),
        (Inputs(a=1), {"a": 1}),
    ],
)
def test_relatives_of_plain_values_travel_as_plain_values(given_value, expected):
    decoded = DECODER.query(encode_query(Query({"v": given_value}))).inputs["v"]
    assert decoded == expected
    assert type(decoded) is type(expected)


def test_a_numpy_scalar_that_no_plain_value_holds_travels_as_a_tensor():
    for scalar in (np.uint64(2**64 - 1), np.complex64(1 + 2j)):
        decoded = DECODER.query(encode_query(Query({"v": scalar}))).inputs["v"]
        assert decoded.shape == ()
        assert decoded.dtype == scalar.dtype
        assert decoded[()] == scalar


def endless():
    items = []
    items.append(items)
    return items


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (2**63, reasons.NOT_ENCODABLE),
        (-(2**63) - 1, reasons.NOT_ENCODABLE),
        (object(), reasons.NOT_ENCODABLE),
        ({1, 2}, reasons.NOT_ENCODABLE),
        ({1: 2}, reasons.NOT_ENCODABLE),
        ("\ud800", reasons.NOT_ENCODABLE),
        ({"\ud800": 1}, reasons.NOT_ENCODABLE),
        (1j, reasons.NOT_ENCODABLE),
        (np.datetime64("2020-01-01", "ns"), reasons.NOT_ENCODABLE),
        (np.longdouble(1), reasons.NOT_ENCODABLE),
        (endless(), reasons.TOO_LARGE),
        ("x" * (2**20 + 1), reasons.TOO_LARGE),
        ("é" * (2**19 + 1), reasons.TOO_LARGE),
        (b"x" * (2**20 + 1), reasons.TOO_LARGE),
        ({"n" * 257: 1}, reasons.TOO_LARGE),
        ([None] * 16_384, reasons.TOO_LARGE),
        ({str(i): None for i in range(1_025)}, reasons.TOO_LARGE),
        ([np.zeros(2**20)] * 2, reasons.TOO_LARGE),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value[:12].encode("utf-8", "replace"),
)
def test_what_cannot_travel_is_refused_with_its_reason(value, reason):
    for encode, message in ((encode_query, Query({"v": value})), (encode_outcome, Outcome(PREDICTION, {"v": value}))):
        with pytest.raises(WireError) as error:
            encode(message)
        assert error.value.reason == reason
        assert str(error.value).startswith(("'v': ", "a message of "))


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome("cancelled"),
        Outcome(FAILED, reason=None),
        Outcome(FAILED, stage="s" * 300),
        Outcome(FAILED, timings=[StageTiming("s", 0.0, 0.0, 0.0, 1, "m", 3)]),
        Outcome(FAILED, timings=[StageTiming("s", "soon", 0.0, 0.0, 1)]),
        Outcome(FAILED, timings=[StageTiming("s", 0.0, 0.0, 0.0, 1)] * 257),
    ],
)
def test_an_outcome_that_is_none_is_refused(outcome):
    with pytest.raises(WireError):
        encode_outcome(outcome)


@given(queries)
def test_whatever_is_encoded_within_limits_is_decoded_within_them(query):
    limits = Limits(max_values=6, max_depth=1, max_entries=3, max_rank=2, max_string_bytes=10, max_name_bytes=8)
    refusals = []
    for attempt in (lambda: encode_query(query, limits), lambda: Decoder(limits).query(encode_query(query))):
        try:
            attempt()
            refusals.append(None)
        except WireError as error:
            refusals.append(error.reason)
    assert refusals in ([None, None], [reasons.TOO_LARGE, reasons.TOO_LARGE])


def test_an_explanation_always_travels():
    for text in ("half \ud800 a character", "x" * 2**21, "é" * 5_000):
        assert len(DECODER.outcome(encode_outcome(Outcome(FAILED, text=text))).text) <= 4_096
        letter = DeadLetter("t", 0, 0, "s", "r", text, 0)
        assert len(DECODER.dead_letter(encode_dead_letter(letter)).text) <= 4_096


def test_a_failure_travels_whatever_the_limits_of_a_pipeline_file():
    timings = [StageTiming("s" * 40, 0.0, 0.0, 0.0, 1)] * 200
    failure = Outcome(
        FAILED, reason=reasons.WRONG_RESULT_COUNT, text="\u00fc" * 5_000, stage="s" * 200, timings=timings
    )
    for limits in (Limits(max_string_bytes=1), Limits(max_string_bytes=10, max_message_bytes=1_024)):
        found = Decoder(limits).outcome(encode_outcome(failure, limits))
        assert (found.kind, found.reason, found.stage) == (failure.kind, failure.reason, failure.stage)
        letter = DeadLetter("t", 0, 0, "s", "r", "\u00fc" * 5_000, 0)
        assert Decoder(limits).dead_letter(encode_dead_letter(letter, limits)).topic == "t"


def test_a_message_of_the_largest_size_fits_into_a_dead_letter():
    limits = Limits(max_message_bytes=1_000)
    letter = DeadLetter(
        "t" * 249, 0, 0, "s" * 249, "r", "x" * 4_096, 0, b"k" * 100, b"v" * 1_000, [(b"h", b"v" * 9_000)]
    )
    assert Decoder(limits).dead_letter(encode_dead_letter(letter, limits)) == letter
    letter.value = b"v" * 2**17
    assert refusal(encode_dead_letter, letter, limits) == reasons.TOO_LARGE


def test_a_message_of_another_type_is_refused():
    query, outcome = encode_query(Query({})), encode_outcome(Outcome(FAILED))
    letter = encode_dead_letter(DeadLetter("t", 0, 0, "s", "r", "", 0))
    for decode, message in (
        (DECODER.query, outcome),
        (DECODER.outcome, query),
        (DECODER.message, letter),
        (DECODER.dead_letter, query),
    ):
        assert refusal(decode, message) == reasons.UNKNOWN_SCHEMA
