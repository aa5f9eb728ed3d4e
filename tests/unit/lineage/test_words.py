"""A replica's word: as it was said, in Avro's bytes, and refused where it cannot travel."""

import io
import json
from dataclasses import replace

import fastavro
import pytest
from hypothesis import given

from lineage import reasons
from lineage.errors import WireError
from lineage.limits import MAX_QUANTILES
from lineage.message import PlanWord, Query
from lineage.schemas import HEADER_BYTES, MARKER, OWN_PARSED, WORD, SchemaBook
from lineage.values.codec import Decoder, encode_query, encode_word

from .schema_versions import NEXT
from .strategies import plan_words, same

# Numbers that four bytes hold without an error.
SAID = PlanWord(
    *("detect", 1, 1_790_000_000_000_000, 1_790_000_100_000_000, 1.0, 0.25, 50.0),
    *(tuple(index / 64 for index in range(20)), 800, 16, 12.5, 0.0625, 0.03125, 100.0, 96.0),
    *(0.5, 43, True, 0.75, tuple(index / 128 for index in range(20))),
)


@given(plan_words)
def test_a_word_comes_back_as_it_was_said(word):
    assert same(Decoder().word(encode_word(word)), word)


def as_record(word):
    stream = io.BytesIO(encode_word(word)[HEADER_BYTES:])
    record = fastavro.schemaless_reader(stream, fastavro.parse_schema(OWN_PARSED[WORD].to_json()))
    assert stream.read() == b""
    return record


def test_the_bytes_are_avros():
    told = {name: getattr(SAID, name) for name in PlanWord.__slots__}
    assert as_record(SAID) == told | {"waits": list(SAID.waits), "hops": list(SAID.hops)}


def test_a_word_takes_few_bytes():
    assert len(encode_word(SAID)) <= 172 + 4 * 20 - 2


def test_what_the_next_version_adds_is_skipped():
    book = SchemaBook()
    header = MARKER + book.add(NEXT[WORD])
    stream = io.BytesIO()
    record = as_record(SAID) | {"extras": {"new": [1]}}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(NEXT[WORD])), record)
    assert Decoder(book=book).word(header + stream.getvalue()) == SAID


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"waits": (0.1,) * (MAX_QUANTILES + 1)}, reasons.TOO_LARGE),
        ({"hops": (0.1,) * (MAX_QUANTILES + 1)}, reasons.TOO_LARGE),
        ({"waits": ("soon",)}, reasons.NOT_ENCODABLE),
        ({"stage": "n" * 300}, reasons.TOO_LARGE),
        ({"queueing": "long"}, reasons.NOT_ENCODABLE),
        ({"at_us": 2**70}, reasons.NOT_ENCODABLE),
    ],
)
def test_what_cannot_travel_is_refused_where_it_is_written(changes, reason):
    with pytest.raises(WireError) as error:
        encode_word(replace(SAID, **changes))
    assert error.value.reason == reason


def test_a_word_is_no_query_and_a_query_no_word():
    with pytest.raises(WireError, match="neither a query"):
        Decoder().message(encode_word(SAID))
    with pytest.raises(WireError, match="no replica's word"):
        Decoder().word(encode_query(Query({})))
