"""A replica's word: within its stated error, as small as is said, and in the form that words had first, too."""

import io
import json
import math
from dataclasses import replace

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage import reasons
from lineage.errors import WireError
from lineage.message import PlanWord, Query
from lineage.schemas import HEADER_BYTES, MARKER, OWN_FINGERPRINTS, OWN_PARSED, PLAN_WORD, WORD, SchemaBook
from lineage.values.codec import Decoder, encode_query, encode_word
from lineage.values.words import MAX_WAITS

from .schema_versions import NEXT, TWINS
from .strategies import plan_words, same

# Numbers that two bytes hold without an error.
SAID = PlanWord(
    *("detect", 1, 1_790_000_000_000_000, 1_790_000_100_000_000, 1.0, 0.25, 50.0),
    *(tuple(index / 255 for index in (*range(0, 247, 13), 255)), 800, 16, 12.5, 0.0625, 0.03125, 100.0, 96.0),
    *(0.5, 43, True, 0.75, (0.25, 0.5)),
)
SUMMARIES = ("waits", "hops")
FLOATS = [name for name in PlanWord.__slots__ if isinstance(getattr(SAID, name), float)]
EXACT = [name for name in PlanWord.__slots__ if name not in {*FLOATS, *SUMMARIES}]


def near(one, other):
    """Whether a float arrived as it was said, but for what is lost on the way."""
    if math.isnan(other) or math.isinf(other):
        return same(one, other)
    kept = min(max(other, -65_504.0), 65_504.0)
    return math.copysign(1, one) == math.copysign(1, other) and abs(one - kept) <= max(abs(kept) / 2048, 3e-8)


@given(plan_words)
def test_a_word_comes_back_within_its_error(word):
    back = Decoder().word(encode_word(word))
    assert all(same(getattr(back, name), getattr(word, name)) for name in EXACT)
    assert all(near(getattr(back, name), getattr(word, name)) for name in FLOATS)
    for name in SUMMARIES:
        came, said = getattr(back, name), getattr(word, name)
        bound = (1 / 510 + 1 / 2048) * max(said, default=0.0) + 3e-8
        assert len(came) == len(said)
        assert all(abs(one - other) <= bound for one, other in zip(came, said, strict=True))


@given(st.floats(6.2e-5, 65_504))
def test_the_error_of_a_number_is_a_2048th_of_it_at_most(number):
    back = Decoder().word(encode_word(replace(SAID, queueing=number)))
    assert abs(back.queueing - number) <= number / 2048


@pytest.mark.parametrize("number", [65_520.0, 1e12, 1e300])
def test_what_is_above_the_most_is_said_as_the_most(number):
    back = Decoder().word(encode_word(replace(SAID, entered=number, drop_rate=-number)))
    assert (back.entered, back.drop_rate) == (65_504.0, -65_504.0)


def test_what_two_bytes_hold_comes_back_as_it_went():
    back = Decoder().word(encode_word(SAID))
    assert (back.waits, back.hops) == (pytest.approx(SAID.waits), pytest.approx(SAID.hops, abs=0.001))
    assert replace(back, waits=(), hops=()) == replace(SAID, waits=(), hops=())


@given(plan_words)
def test_both_decoders_read_the_same(word):
    book = SchemaBook()
    twin = MARKER + book.add(TWINS[WORD]) + encode_word(word)[HEADER_BYTES:]
    assert same(Decoder(book=book).word(twin), Decoder().word(encode_word(word)))


def test_the_bytes_are_avros():
    stream = io.BytesIO(encode_word(SAID)[HEADER_BYTES:])
    record = fastavro.schemaless_reader(stream, fastavro.parse_schema(OWN_PARSED[WORD].to_json()))
    assert stream.read() == b""
    assert list(record.pop("waits")) == [*range(0, 247, 13), 255]
    assert list(record.pop("hops")) == [128, 255]
    assert record.pop("numbers")[:4] == b"\x00\x3c\x00\x34"  # 1.0 and .25
    assert record.pop("up_us") == 100_000_000
    assert record == {name: getattr(SAID, name) for name in EXACT if name != "began_us"}


def test_a_word_takes_few_bytes():
    assert len(encode_word(replace(SAID, hops=()))) <= 85
    assert len(encode_word(replace(SAID, hops=SAID.waits))) <= 105


def first_form(word, waits):
    record = {name: getattr(word, name) for name in PlanWord.__slots__} | {"waits": waits, "transfer": 0.75}
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(OWN_PARSED[PLAN_WORD].to_json()), record)
    return MARKER + OWN_FINGERPRINTS[PLAN_WORD] + stream.getvalue()


def test_a_word_of_the_first_form_is_read():
    assert OWN_FINGERPRINTS[PLAN_WORD].hex() == "06c9285310dd76a1"  # it is on topics: it never changes
    back = Decoder().word(first_form(SAID, [0] + [200] * 23))
    assert back.waits == pytest.approx([index * 0.002 for index in range(24)])
    assert replace(back, waits=()) == replace(SAID, waits=(), hops=(0.75,))


def test_what_the_next_version_adds_is_skipped():
    book = SchemaBook()
    header = MARKER + book.add(NEXT[WORD])
    stream = io.BytesIO(encode_word(SAID)[HEADER_BYTES:])
    record = fastavro.schemaless_reader(stream, fastavro.parse_schema(OWN_PARSED[WORD].to_json()))
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(NEXT[WORD])), record | {"extras": {"new": [1]}})
    assert same(Decoder(book=book).word(header + stream.getvalue()), Decoder().word(encode_word(SAID)))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"waits": (0.1,) * (MAX_WAITS + 1)}, reasons.TOO_LARGE),
        ({"hops": (0.1,) * (MAX_WAITS + 1)}, reasons.TOO_LARGE),
        ({"hops": (float("nan"),)}, reasons.NOT_ENCODABLE),
        ({"waits": (float("nan"),)}, reasons.NOT_ENCODABLE),
        ({"waits": (float("inf"),)}, reasons.NOT_ENCODABLE),
        ({"waits": (-1.0, 1.0)}, reasons.NOT_ENCODABLE),
        ({"waits": ("soon",)}, reasons.NOT_ENCODABLE),
        ({"stage": "n" * 300}, reasons.TOO_LARGE),
        ({"batch": 2**40}, reasons.NOT_ENCODABLE),
        ({"queueing": "long"}, reasons.NOT_ENCODABLE),
        ({"at_us": 2**70}, reasons.NOT_ENCODABLE),
    ],
)
def test_what_cannot_travel_is_refused_where_it_is_written(changes, reason):
    with pytest.raises(WireError) as error:
        encode_word(PlanWord(**{**{name: getattr(SAID, name) for name in PlanWord.__slots__}, **changes}))
    assert error.value.reason == reason


def test_a_word_is_no_query_and_a_query_no_word():
    with pytest.raises(WireError, match="neither a query"):
        Decoder().message(encode_word(SAID))
    with pytest.raises(WireError, match="no replica's word"):
        Decoder().word(encode_query(Query({})))
