import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage import headers, trace
from lineage.trace import TraceContext

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01".encode()
BASE = [("x-request-id", b"q1"), ("spillway-sent", b"1"), ("spillway-deadline", b"2")]


def decoded(*pairs):
    return headers.decode([*BASE, *pairs]).trace


def test_a_valid_traceparent_is_taken():
    context = decoded(("traceparent", PARENT), ("tracestate", b"congo=t61rcWkgMzE"), ("baggage", b"user=a"))
    assert context == TraceContext(TRACE, SPAN, 1, b"congo=t61rcWkgMzE", b"user=a")
    assert context.traceparent() == PARENT


def test_a_child_is_in_the_same_trace_with_a_span_of_its_own():
    parent = TraceContext(TRACE, SPAN, 1, b"a=b", b"c=d")
    children = {parent.child() for _ in range(100)}
    assert len({child.span_id for child in children} | {SPAN}) == 101
    assert {(c.trace_id, c.flags, c.state, c.baggage) for c in children} == {(TRACE, 1, b"a=b", b"c=d")}


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
