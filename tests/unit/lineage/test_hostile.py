"""Whatever the bytes: one typed error, in bounded time and memory."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.lineage import reasons
from spillway.lineage.errors import WireError
from spillway.lineage.limits import Limits
from spillway.lineage.message import FAILED, DeadLetter, Outcome, PlanWord, Query, StageTiming
from spillway.lineage.schemas import (
    DEAD_LETTER,
    HEADER_BYTES,
    MARKER,
    OUTCOME,
    OWN_FINGERPRINTS,
    QUERY,
    WORD,
    SchemaBook,
)
from spillway.lineage.values.codec import Decoder, encode_dead_letter, encode_outcome, encode_query, encode_word
from spillway.lineage.values.decoding import read_long

from .hostile_bytes import BOMB, memory_held, refusal, text, varint
from .schema_versions import LESS, TWINS
from .strategies import dead_letters, outcomes, plan_words, queries

HEADERS = {name: MARKER + fingerprint for name, fingerprint in OWN_FINGERPRINTS.items()}
BOOK = SchemaBook()
LESS_HEADERS = {name: MARKER + BOOK.add(text) for name, text in LESS.items()}
TWIN_HEADERS = {name: MARKER + BOOK.add(text) for name, text in TWINS.items()}
DECODER = Decoder(Limits(), BOOK)
LETTER_HEADERS = {versions[DEAD_LETTER] for versions in (HEADERS, LESS_HEADERS, TWIN_HEADERS)}
WORD_HEADERS = {HEADERS[WORD], TWIN_HEADERS[WORD]}
ALL_HEADERS = [*HEADERS.values(), *LESS_HEADERS.values(), *TWIN_HEADERS.values()]


def attempt(message, decoder=DECODER):
    if message[:HEADER_BYTES] in LETTER_HEADERS:
        return refusal(decoder.dead_letter, message)
    return refusal(decoder.word if message[:HEADER_BYTES] in WORD_HEADERS else decoder.message, message)


def memory_of(message):
    return memory_held(attempt, message)


def query(value):
    """A query of one input whose value, from its branch on, is `value`."""
    return HEADERS[QUERY] + b"\x02\x02v" + value + b"\0\0\0\0"


NULL, BOOLEAN, LONG, DOUBLE, STRING, BYTES, TENSOR, ARRAY, MAP = (varint(branch) for branch in range(9))


def tensor(dtype, shape, data):
    dims = varint(len(shape)) + b"".join(map(varint, shape)) + b"\0" if shape else b"\0"
    return TENSOR + text(dtype) + dims + text(data)


HOSTILE = {
    "no bytes": (b"", reasons.NOT_AVRO),
    "half a header": (HEADERS[QUERY][:5], reasons.NOT_AVRO),
    "JSON": (b'{"inputs": {"x": 1}}', reasons.NOT_AVRO),
    "a container file": (b"Obj\x01" + b"\0" * 40, reasons.NOT_AVRO),
    "an unknown fingerprint": (MARKER + b"\0" * 8, reasons.UNKNOWN_SCHEMA),
    "a header alone": (HEADERS[QUERY], reasons.CORRUPT),
    "a map of 2**62 entries": (HEADERS[QUERY] + varint(BOMB), reasons.TOO_LARGE),
    "a map of -2**63 entries": (HEADERS[QUERY] + varint(-BOMB - 1) + b"\0", reasons.TOO_LARGE),
    "a name of 2**62 bytes": (HEADERS[QUERY] + b"\x02" + varint(BOMB), reasons.CORRUPT),
    "a name of -1 bytes": (HEADERS[QUERY] + b"\x02\x01", reasons.CORRUPT),
    "a name that is no UTF-8": (HEADERS[QUERY] + b"\x02\x02\xff\0\0\0\0", reasons.CORRUPT),
    "a name over the limit": (HEADERS[QUERY] + b"\x02" + text(b"n" * 257) + b"\0\0\0\0\0", reasons.TOO_LARGE),
    "a list of 2**62 nulls": (query(ARRAY + varint(BOMB)), reasons.TOO_LARGE),
    "a list in too many blocks": (query(ARRAY + (varint(8_000) + NULL * 8_000) * 3 + b"\0"), reasons.TOO_LARGE),
    "a map in too many blocks": (query(MAP + (varint(600) + b"\0\0" * 600) * 2 + b"\0"), reasons.TOO_LARGE),
    "a list without an end": (query(ARRAY + varint(16_000) + NULL * 16_000)[:-3], reasons.CORRUPT),
    "a string of 2**40 bytes": (query(STRING + varint(2**40)), reasons.CORRUPT),
    "a string of negative length": (query(STRING + varint(-5) + b"hello"), reasons.CORRUPT),
    "a string that is no UTF-8": (query(STRING + text(b"\xed\xa0\x80")), reasons.CORRUPT),
    "a string over the limit": (query(STRING + text(b"s" * (2**20 + 1))), reasons.TOO_LARGE),
    "bytes of 2**40 bytes": (query(BYTES + varint(2**40)), reasons.CORRUPT),
    "bytes of negative length": (query(BYTES + varint(-BOMB)), reasons.CORRUPT),
    "bytes over the limit": (query(BYTES + text(b"s" * (2**20 + 1))), reasons.TOO_LARGE),
    "a boolean of 2": (query(BOOLEAN + b"\x02"), reasons.CORRUPT),
    "half a double": (HEADERS[QUERY] + b"\x02\x02v" + DOUBLE + b"\0\0\0", reasons.CORRUPT),
    "a number of 70 bits": (query(LONG + b"\xff" * 9 + b"\x7f"), reasons.CORRUPT),
    "a number without end": (query(LONG + b"\xff" * 1_000), reasons.CORRUPT),
    "branch 9": (query(varint(9)), reasons.CORRUPT),
    "branch -1": (query(varint(-1)), reasons.CORRUPT),
    "branch 2**62": (query(varint(BOMB)), reasons.CORRUPT),
    "nesting of lists": (query((ARRAY + b"\x02") * 200_000), reasons.TOO_LARGE),
    "nesting of maps": (query((MAP + b"\x02\0") * 200_000), reasons.TOO_LARGE),
    "lists of one level too many": (query((ARRAY + b"\x02") * 17 + NULL + b"\0" * 17), reasons.TOO_LARGE),
    "a map of 1,025 entries": (
        query(MAP + varint(1_025) + b"".join(text(b"%d" % index) + NULL for index in range(1_025)) + b"\0"),
        reasons.TOO_LARGE,
    ),
    "bytes behind the end": (query(NULL) + b"\0", reasons.CORRUPT),
    "an outcome of kind 3": (HEADERS[OUTCOME] + b"\x06" + b"\0" * 6, reasons.CORRUPT),
    "2**62 timings": (HEADERS[OUTCOME] + b"\0\0\0\0\0" + varint(BOMB), reasons.TOO_LARGE),
    "half a timing": (HEADERS[QUERY] + b"\0\0\x02\x02s" + b"\0" * 20, reasons.CORRUPT),
    "a tensor of rank 2**62": (query(TENSOR + text(b"int8") + varint(BOMB)), reasons.TOO_LARGE),
    "a tensor of rank 17": (query(tensor(b"int8", [1] * 17, b"a")), reasons.TOO_LARGE),
    "a tensor in endless blocks": (
        query(TENSOR + text(b"int8") + (varint(9) + b"\x02" * 9) * 2 + b"\0\x02a"),
        reasons.TOO_LARGE,
    ),
    "a tensor of huge dimensions": (query(tensor(b"int8", [BOMB, BOMB], b"a")), reasons.TOO_LARGE),
    "a tensor of huge dimensions and none": (query(tensor(b"int8", [0, BOMB], b"")), reasons.TOO_LARGE),
    "a tensor whose size overflows to 0": (query(tensor(b"int64", [2**31, 2**33], b"")), reasons.TOO_LARGE),
    "a tensor of negative dimensions": (query(tensor(b"int8", [-1, -1], b"a")), reasons.CORRUPT),
    "a tensor with too few data": (query(tensor(b"float32", [2], b"abcd")), reasons.CORRUPT),
    "a tensor with too many data": (query(tensor(b"float32", [1], b"abcde")), reasons.CORRUPT),
    "a tensor with data past the end": (query(TENSOR + text(b"int8") + b"\0" + varint(100)), reasons.CORRUPT),
    "a tensor of objects": (query(tensor(b"object", [1], b"abcdefgh")), reasons.BAD_INPUT),
    "a tensor of no dtype": (query(tensor(b"", [1], b"a")), reasons.BAD_INPUT),
    "a tensor of a long dtype": (query(tensor(b"f" * 100, [1], b"a")), reasons.BAD_INPUT),
    "a tensor of a dtype of negative length": (query(TENSOR + b"\x09int8" + b"\0\x02a"), reasons.BAD_INPUT),
    "a bool tensor with a 2": (query(tensor(b"bool", [2], b"\x01\x02")), reasons.CORRUPT),
    "a word with 2**62 waits": (HEADERS[WORD] + b"\0" * 16 + varint(BOMB), reasons.TOO_LARGE),
    "a word with too many blocks of waits": (
        HEADERS[WORD] + b"\0" * 16 + (varint(40) + b"\2" * 160) * 2 + b"\0" * 38,
        reasons.TOO_LARGE,
    ),
    "a word of a stage with a long name": (HEADERS[WORD] + text(b"n" * 257) + b"\0" * 53, reasons.TOO_LARGE),
    "a word of a stage that is no UTF-8": (HEADERS[WORD] + text(b"\xff") + b"\0" * 53, reasons.CORRUPT),
    "bytes behind a word": (encode_word(PlanWord("s", 0, 0, 0)) + b"\0", reasons.CORRUPT),
    "a dead letter with 2**62 headers": (
        encode_dead_letter(DeadLetter("t", 0, 0, "s", "r", "", 0))[:-1] + varint(BOMB),
        reasons.TOO_LARGE,
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_give_their_reason_and_take_no_memory(name):
    message, reason = HOSTILE[name]
    assert attempt(message) == reason
    assert memory_of(message) < 2 * len(message) + 200_000


# Where fastavro, or the scan before it, sees it otherwise.
OTHERWISE = {
    "a boolean of 2": None,
    "a map in too many blocks": None,  # its entries all have one name
    "a tensor of a dtype of negative length": reasons.CORRUPT,
}


@pytest.mark.parametrize("name", [name for name in HOSTILE if HOSTILE[name][0][:HEADER_BYTES] in HEADERS.values()])
def test_hostile_bytes_of_a_foreign_schema_give_the_same(name):
    message, reason = HOSTILE[name]
    own = next(own for own, header in HEADERS.items() if message.startswith(header))
    twin = TWIN_HEADERS[own] + message[HEADER_BYTES:]
    assert attempt(twin) == OTHERWISE.get(name, reason)
    assert memory_of(twin) < 2 * len(message) + 400_000


@pytest.mark.parametrize("value", [None, "text", 7, bytearray(b"\xc3\x01"), memoryview(b"\xc3\x01")])
def test_a_value_that_is_no_bytes_is_not_avro(value):
    assert refusal(DECODER.message, value) == reasons.NOT_AVRO


def test_a_message_over_the_limit_is_refused_unread():
    message = encode_query(Query({"x": np.zeros(1_000, np.uint8)}))
    assert attempt(message, Decoder(Limits(max_message_bytes=len(message)))) is None
    assert attempt(message, Decoder(Limits(max_message_bytes=len(message) - 1))) == reasons.TOO_LARGE
    assert attempt(message, Decoder(Limits(max_tensor_bytes=999))) == reasons.TOO_LARGE


@given(st.sampled_from(ALL_HEADERS), st.binary(max_size=300))
def test_arbitrary_bytes_give_one_typed_error(header, body):
    attempt(body)
    attempt(header + body)


SMALL = st.integers(0, 40).map(varint) | st.sampled_from([b"\x02v", b"\x08int8", b"\x0afloat", b"\0", b"\x02", b"\x04"])


@given(st.sampled_from(ALL_HEADERS), st.lists(SMALL, max_size=120))
def test_bytes_that_look_like_structure_give_one_typed_error(header, parts):
    attempt(header + b"".join(parts))


@st.composite
def damaged(draw):
    message = bytearray(
        draw(
            st.one_of(
                queries.map(encode_query),
                outcomes.map(encode_outcome),
                dead_letters.map(encode_dead_letter),
                plan_words.map(encode_word),
            )
        )
    )
    if draw(st.booleans()):
        message[:HEADER_BYTES] = draw(st.sampled_from(ALL_HEADERS))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(HEADER_BYTES, len(message)))
        end = at + draw(st.integers(0, 3))
        message[at:end] = draw(st.binary(max_size=3) | st.integers(-(2**63), BOMB).map(varint))
    return bytes(message)


@given(damaged())
def test_damaged_messages_give_one_typed_error(message):
    attempt(message)


@given(damaged())
def test_damaged_messages_take_memory_for_what_they_hold(message):
    assert memory_of(message) < 50 * len(message) + 100_000


@given(st.one_of(queries.map(encode_query), outcomes.map(encode_outcome), plan_words.map(encode_word)), st.data())
def test_a_message_cut_short_is_corrupt(message, data):
    cut = data.draw(st.integers(HEADER_BYTES, len(message) - 1))
    assert attempt(message[:cut]) == reasons.CORRUPT


# What costs the most memory for the least bytes: a quarter of what the limits admit, for each value costs the same.
_VALUES = 4_000
DENSE = {
    "nulls": ARRAY + varint(_VALUES) + NULL * _VALUES + b"\0",
    "empty lists": ARRAY + varint(_VALUES) + (ARRAY + b"\0") * _VALUES + b"\0",
    "empty maps": ARRAY + varint(_VALUES) + (MAP + b"\0") * _VALUES + b"\0",
    "lists of one": ARRAY + varint(_VALUES // 2) + (ARRAY + b"\x02\0\0") * (_VALUES // 2) + b"\0",
    "small ints": ARRAY + varint(_VALUES) + (LONG + varint(-60)) * _VALUES + b"\0",
    "short texts": ARRAY + varint(_VALUES) + (STRING + b"\x04\xc4\x80") * _VALUES + b"\0",
    "empty tensors": ARRAY + varint(_VALUES) + tensor(b"int8", [0], b"") * _VALUES + b"\0",
    "tensors of rank 16": ARRAY + varint(_VALUES) + tensor(b"int8", [1] * 16, b"a") * _VALUES + b"\0",
}


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("header", [HEADERS[QUERY], LESS_HEADERS[QUERY]], ids=["own", "less"])
def test_the_densest_messages_take_memory_by_their_number_of_values(name, header):
    message = query(DENSE[name])
    if header != HEADERS[QUERY]:
        message = header + message[HEADER_BYTES:-2]  # without timings and flags
    assert attempt(message) is None
    each = 400 if header == HEADERS[QUERY] else 1_200  # fastavro makes a dict, and more, of each value
    assert memory_of(message) < _VALUES * each


def test_a_big_tensor_costs_no_copy():
    message = encode_query(Query({"x": np.zeros(2**20, np.float32)}))
    assert memory_of(message) < 100_000


def test_timings_over_the_limit_are_refused():
    timings = [StageTiming("s", 0.0, 0.0, 0.0, 1)] * 10
    message = encode_outcome(Outcome(FAILED, timings=timings))
    for header in (HEADERS[OUTCOME], TWIN_HEADERS[OUTCOME]):
        same = header + message[HEADER_BYTES:]
        assert attempt(same, Decoder(Limits(max_timings=10), BOOK)) is None
        assert attempt(same, Decoder(Limits(max_timings=9), BOOK)) == reasons.TOO_LARGE


class Counting(bytes):
    """Bytes that count how often they are looked at."""

    looks = 0

    def __getitem__(self, at):
        self.looks += 1
        return super().__getitem__(at)


def test_a_number_without_end_is_given_up_after_its_tenth_byte():
    # Its value would grow with every byte, and the time with the square of them.
    buffer = Counting(b"\xff" * 1_000)
    with pytest.raises(WireError):
        read_long(buffer, 0)
    assert buffer.looks == 10
