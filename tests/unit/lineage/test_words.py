"""A replica's word: the same bytes as fastavro's, as small as is said, and what a next version adds is skipped."""

import io
import json

import fastavro
import pytest
from hypothesis import given

from lineage import reasons
from lineage.errors import WireError
from lineage.message import PlanWord, Query
from lineage.schemas import HEADER_BYTES, MARKER, OWN_PARSED, PLAN_WORD, SchemaBook
from lineage.values.codec import Decoder, encode_query, encode_word
from lineage.values.words import MAX_WAITS

from .schema_versions import NEXT, TWINS
from .strategies import plan_words, same

WORD = PlanWord(
    *("detect", 1, 1_790_000_000_000_000, 1_790_000_100_000_000, 1.0, 0.25, 50.0),
    *(tuple(index * 0.002 for index in range(24)), 800, 16, 12.5, 0.0625, 0.03125, 100.0, 96.0, 0.5, 43, True, 0.75),
)


@given(plan_words)
def test_a_word_comes_back_as_it_went(word):
    back = Decoder().word(encode_word(word))
    assert [round(wait * 1e5) for wait in back.waits] == [round(wait * 1e5) for wait in word.waits]
    assert all(same(getattr(back, name), getattr(word, name)) for name in PlanWord.__slots__ if name != "waits")


@given(plan_words)
def test_both_decoders_read_the_same(word):
    book = SchemaBook()
    twin = MARKER + book.add(TWINS[PLAN_WORD]) + encode_word(word)[HEADER_BYTES:]
    assert same(Decoder(book=book).word(twin), Decoder().word(encode_word(word)))


def test_the_bytes_are_avros():
    stream = io.BytesIO(encode_word(WORD)[HEADER_BYTES:])
    record = fastavro.schemaless_reader(stream, fastavro.parse_schema(OWN_PARSED[PLAN_WORD].to_json()))
    assert record.pop("waits") == [0] + [200] * 23
    assert record == {name: getattr(WORD, name) for name in PlanWord.__slots__ if name != "waits"}


def test_a_word_takes_few_bytes():
    assert len(encode_word(WORD)) < 150


def test_what_the_next_version_adds_is_skipped():
    book = SchemaBook()
    header = MARKER + book.add(NEXT[PLAN_WORD])
    record = {name: getattr(WORD, name) for name in PlanWord.__slots__} | {"waits": [1, 2], "extras": {"new": [1]}}
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(NEXT[PLAN_WORD])), record)
    back = Decoder(book=book).word(header + stream.getvalue())
    assert back.waits == pytest.approx((1e-5, 3e-5))
    assert (back.stage, back.queueing, back.longest) == ("detect", 0.25, 0.75)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"waits": (0.1,) * (MAX_WAITS + 1)}, reasons.TOO_LARGE),
        ({"waits": (float("nan"),)}, reasons.NOT_ENCODABLE),
        ({"waits": (float("inf"),)}, reasons.NOT_ENCODABLE),
        ({"waits": (1e9,)}, reasons.NOT_ENCODABLE),
        ({"waits": ("soon",)}, reasons.NOT_ENCODABLE),
        ({"stage": "n" * 300}, reasons.TOO_LARGE),
        ({"batch": 2**40}, reasons.NOT_ENCODABLE),
        ({"queueing": "long"}, reasons.NOT_ENCODABLE),
    ],
)
def test_what_cannot_travel_is_refused_where_it_is_written(changes, reason):
    with pytest.raises(WireError) as error:
        encode_word(PlanWord(**{**{name: getattr(WORD, name) for name in PlanWord.__slots__}, **changes}))
    assert error.value.reason == reason


def test_a_word_is_no_query_and_a_query_no_word():
    with pytest.raises(WireError, match="neither a query"):
        Decoder().message(encode_word(WORD))
    with pytest.raises(WireError, match="no replica's word"):
        Decoder().word(encode_query(Query({})))
