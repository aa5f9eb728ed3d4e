import io
from dataclasses import replace

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.lineage import headers, reasons, trace
from spillway.lineage.errors import WireError
from spillway.lineage.limits import MAX_QUANTILES
from spillway.lineage.message import PlanWord, Query
from spillway.lineage.schemas import HEADER_BYTES, OWN_PARSED, WORD
from spillway.lineage.trace import TraceContext
from spillway.lineage.values.codec import Decoder, encode_query, encode_word

from .hostile_bytes import refusal
from .schema_versions import NEXT, reader_of, written_with
from .strategies import plan_words, same

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01".encode()
BASE = [("x-request-id", b"q1"), ("spillway-sent", b"1"), ("spillway-deadline", b"2")]


def decoded(*pairs):
    return headers.decode([*BASE, *pairs]).trace


def test_a_valid_traceparent_is_taken():
    context = decoded(("traceparent", PARENT), ("tracestate", b"congo=t61rcWkgMzE"), ("baggage", b"user=a"))
    assert context == TraceContext(TRACE, SPAN, 1, b"congo=t61rcWkgMzE", b"user=a")
    assert context.traceparent() == PARENT


def test_a_context_tells_whether_its_caller_records_it_and_whether_there_is_a_caller():
    assert [TraceContext(TRACE, SPAN, flags).sampled for flags in range(4)] == [False, True, False, True]
    assert not trace.is_own("q1", decoded(("traceparent", PARENT)))
    assert trace.is_own("q1", decoded())
    assert trace.is_own("q1", trace.new_trace("q1"))


@pytest.mark.parametrize(
    "parent",
    [
        b"",
        b"rubbish",
        b"\xff" * 55,
        PARENT.upper(),
        PARENT[:-1],
        PARENT + b"-more",
        PARENT + b" ",
        b"ff" + PARENT[2:],
        b"0x" + PARENT[2:],
        b"01" + PARENT[2:] + b"more",
        PARENT.replace(b"-", b"_"),
        b"00-" + b"0" * 32 + b"-" + SPAN.encode() + b"-01",
        b"00-" + TRACE.encode() + b"-" + b"0" * 16 + b"-01",
        b"00-" + TRACE.encode() + b"-" + SPAN.encode() + b"-0g",
        b"00-" + b"+" + TRACE.encode()[1:] + b"-" + SPAN.encode() + b"-01",
    ],
)
def test_an_invalid_traceparent_is_replaced_and_takes_its_state_with_it(parent):
    context = decoded(("traceparent", parent), ("tracestate", b"a=b"), ("baggage", b"c=d"))
    assert context.trace_id not in {TRACE, "0" * 32}
    assert context.state == b""
    assert context.baggage == b"c=d"
    assert trace.read("q1", context.traceparent(), None, None).trace_id == context.trace_id


def test_two_traceparents_are_none():
    assert decoded(("traceparent", PARENT), ("traceparent", PARENT)).trace_id != TRACE


def test_a_later_version_is_read_as_far_as_it_is_known():
    for later in (b"01" + PARENT[2:], b"cc" + PARENT[2:] + b"-what-will-be"):
        context = decoded(("traceparent", later))
        assert (context.trace_id, context.span_id) == (TRACE, SPAN)
        assert context.traceparent() == PARENT


def test_unknown_flags_are_not_passed_on():
    assert decoded(("traceparent", PARENT[:-2] + b"ff")).traceparent().endswith(b"-03")


def test_a_query_without_a_trace_gets_the_same_one_wherever_it_is_read():
    one, other = decoded(), decoded()
    assert one.trace_id == other.trace_id
    assert one.span_id != other.span_id
    assert trace.new_trace("another").trace_id != one.trace_id
    assert one.flags == 0


@pytest.mark.parametrize("state", [b"a" * 2_049, b",".join([b"a=1"] * 33), b"a=\xff", b"a=\n", b"a=\0"])
def test_a_tracestate_that_cannot_be_carried_is_dropped_alone(state):
    context = decoded(("traceparent", PARENT), ("tracestate", state))
    assert context.trace_id == TRACE
    assert context.state == b""


def test_lists_in_several_headers_are_joined_in_order():
    context = decoded(
        ("baggage", b"a=1"),
        ("tracestate", b"x=1"),
        ("traceparent", PARENT),
        ("tracestate", b"y=2"),
        ("baggage", b"b=2"),
    )
    assert context.state == b"x=1,y=2"
    assert context.baggage == b"a=1,b=2"


def test_baggage_over_the_bound_is_dropped():
    assert decoded(("baggage", b"a" * 8_193)).baggage == b""


@given(st.binary(max_size=60), st.binary(max_size=60), st.binary(max_size=60))
def test_these_headers_are_never_an_error(parent, state, baggage):
    context = decoded(("traceparent", parent), ("tracestate", state), ("baggage", baggage))
    assert len(context.traceparent()) == 55


# A replica's word: as it was said, in Avro's bytes, and refused where it cannot travel.

# Numbers that four bytes hold without an error.
SAID = PlanWord(
    *("detect", 1, 1_790_000_000_000_000, 1_790_000_100_000_000, 1.0, 0.25, 50.0),
    *(tuple(index / 64 for index in range(20)), 800, 16, 12.5, 0.0625, 0.03125, 100.0, 96.0),
    *(0.5, 43, True, tuple(index / 128 for index in range(20))),
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
    assert len(encode_word(SAID)) <= 168 + 4 * 22 - 2


def test_what_the_next_version_adds_is_skipped():
    message = written_with(NEXT[WORD], as_record(SAID) | {"extras": {"new": [1]}})
    assert reader_of(NEXT[WORD]).word(message) == SAID


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
    assert refusal(encode_word, replace(SAID, **changes)) == reason


def test_a_word_is_no_query_and_a_query_no_word():
    with pytest.raises(WireError, match="neither a query"):
        Decoder().message(encode_word(SAID))
    with pytest.raises(WireError, match="not a replica's status"):
        Decoder().word(encode_query(Query({})))
