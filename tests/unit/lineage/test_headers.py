import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.lineage import headers, hops, reasons
from spillway.lineage.errors import WireError
from spillway.lineage.headers import Headers
from spillway.lineage.hops import Hop
from spillway.lineage.trace import TraceContext

from .hostile_bytes import refusal

MOST = 2**63 - 1
ids = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=128)
stages = st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True)
numbers = st.integers(0, MOST)
marks = st.builds(Hop, stages, numbers, numbers, numbers, numbers)
paths = st.dictionaries(stages, st.lists(stages, max_size=3, unique=True).map(tuple), max_size=4)
hexes = st.integers(1, 2**64 - 1).map("{:016x}".format)
contexts = st.builds(
    TraceContext,
    st.integers(1, 2**128 - 1).map("{:032x}".format),
    hexes,
    st.integers(0, 3),
    st.sampled_from([b"", b"vendor=value", b"a=1,b=2"]),
    st.sampled_from([b"", b"user=alice", b"a=1;p=2,b=%20"]),
)
keys = (
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    .map("x-{}".format)
    .filter(lambda k: k != "x-request-id")
)
extras = st.lists(st.tuples(keys, st.binary(max_size=30)), max_size=5)
all_headers = st.builds(
    Headers, ids, numbers, numbers, st.none() | marks, paths, st.lists(stages, max_size=3).map(tuple), contexts, extras
)

BASE = [("x-request-id", b"q1"), ("spillway-sent", b"1700000000000000"), ("spillway-deadline", b"1700000000400000")]


def refused(pairs, request_id="q1"):
    """The text of the error with that id that such headers give."""
    with pytest.raises(WireError) as error:
        headers.decode(pairs)
    assert (error.value.reason, error.value.request_id) == (reasons.BAD_HEADERS, request_id)
    return str(error.value)


@given(all_headers)
def test_headers_come_back_as_they_were_also_with_keys_as_bytes(original):
    pairs = headers.encode(original)
    assert headers.decode(pairs) == original
    assert headers.decode((key.encode(), value) for key, value in pairs) == original


def test_what_stands_on_the_wire():
    hop = Hop("detect", 3, 7, 300, 0)
    sent = Headers("q1", 1_700_000_000_000_000, 1_700_000_000_400_000, hop, {"a": ("b", "c"), "d": ()}, ("e", "f"))
    assert headers.encode(sent) == [
        *BASE,
        ("spillway-hops", b"\x01\x01\x06detect\x03\x07\xac\x02\x00"),
        ("spillway-path", b"a=b,c;d="),
        ("spillway-lost", b"e,f"),
    ]


FOREIGN = [
    (b"\xff\xfe", b"1"),
    (b"x-\xff", b"2"),
    ("x-\ud800", b"3"),
    ("content-type", b"application/json"),
    ("", b""),
    (b"", None),
    ("spillway-later", b"?"),
    ("X-Request-Id", b"other"),
]


def test_foreign_headers_are_left_alone():
    decoded = headers.decode([*FOREIGN, *BASE, *FOREIGN])
    assert decoded.request_id == "q1"
    assert decoded.extra == []


def test_the_passthrough_keeps_order_and_repetition():
    decoded = headers.decode([("x-b", b"1"), *BASE, (b"x-a", b"2"), ("x-b", None)])
    assert decoded.extra == [("x-b", b"1"), ("x-a", b"2"), ("x-b", b"")]


@pytest.mark.parametrize(
    "extra", [[("x-a", b"")] * 33, [("x-a", b"v" * 8_190)], [("x-" + "k" * 8_191, b"")], [("x-" + "é" * 4_096, b"")]]
)
def test_the_passthrough_is_bounded(extra):
    refused([*BASE, *extra])
    assert refusal(headers.encode, Headers("q1", 1, 2, extra=extra)) == reasons.NOT_ENCODABLE


BAD_IDS = [b"", b"a b", b"a\n", b"\x7f", b"\xc3\xa9", b"\xff", b"a" * 129, b"\0", None]


@pytest.mark.parametrize("raw", BAD_IDS)
def test_an_absurd_request_id_leaves_none(raw):
    refused([("x-request-id", raw), *BASE[1:]], None)


@pytest.mark.parametrize("key", ["spillway-sent", "spillway-deadline"])
@pytest.mark.parametrize(
    "raw", [b"", b"-1", b"+1", b" 1", b"1_0", b"1.5", b"1e6", b"\xd9\xa1", b"9" * 19, b"9" * 5_000, b"0x10", None]
)
def test_absurd_times_give_an_error_with_the_id(key, raw):
    assert key in refused([(name, raw if name == key else value) for name, value in BASE])


@pytest.mark.parametrize("missing", range(3))
def test_a_missing_header_is_an_error(missing):
    refused(BASE[:missing] + BASE[missing + 1 :], None if missing == 0 else "q1")


@pytest.mark.parametrize("nothing", [[], None, ()])
def test_no_headers_at_all_are_an_error(nothing):
    refused(nothing, None)


def test_the_last_of_two_counts():
    decoded = headers.decode([("x-request-id", b"q0"), ("spillway-sent", b"rubbish"), *BASE])
    assert decoded.request_id == "q1"


@pytest.mark.parametrize(
    "wrong",
    [
        Headers("", 1, 2),
        Headers("a b", 1, 2),
        Headers("é", 1, 2),
        Headers("a" * 129, 1, 2),
        Headers("q", -1, 2),
        Headers("q", 1, 2**63),
        Headers("q", 1, 2, Hop("s", 0, 0, -1, 0)),
        Headers("q", 1, 2, Hop("s", 0, 0, 0, 2**63)),
        Headers("q", 1, 2, Hop("", 0, 0, 0, 0)),
        Headers("q", 1, 2, Hop("s" * 250, 0, 0, 0, 0)),
        Headers("q", 1, 2, Hop("\ud800", 0, 0, 0, 0)),
        Headers("q", 1, 2, path={"a;b": ()}),
        Headers("q", 1, 2, path={"a": ("b,c",)}),
        Headers("q", 1, 2, path={"": ()}),
        Headers("q", 1, 2, path={f"stage-{i}": ("x" * 100,) for i in range(50)}),
        Headers("q", 1, 2, lost=("a b",)),
        Headers("q", 1, 2, lost=("",)),
        Headers("q", 1, 2, extra=[("y-a", b"")]),
        Headers("q", 1, 2, extra=[("x-request-id", b"")]),
        Headers("q", 1, 2, extra=[("x-\ud800", b"")]),
        Headers("q", 1, 2, extra=[("x-a", "text")]),
    ],
)
def test_what_could_not_be_read_again_is_not_sent(wrong):
    assert refusal(headers.encode, wrong) == reasons.NOT_ENCODABLE


own_keys = st.sampled_from([*sorted(headers._OWN), "x-a"])
raw_values = st.none() | st.binary(max_size=40) | st.sampled_from([b"1", b"a=b", b"a", b"\x01\x01\x01a\0\0\0\0"])
raw_pairs = st.lists(st.tuples(own_keys | st.text(max_size=5) | st.binary(max_size=5), raw_values), max_size=12)
any_pairs = raw_pairs | raw_pairs.map(BASE.__add__)


@given(any_pairs)
def test_arbitrary_headers_give_headers_or_one_typed_error(pairs):
    reason = refusal(headers.decode, pairs)
    assert reason in (None, reasons.BAD_HEADERS)
    if reason is None:
        decoded = headers.decode(pairs)
        decoded.content_type = b""  # is not passed on
        assert headers.decode(headers.encode(decoded)) == decoded


@given(any_pairs)
def test_the_id_alone_is_the_one_that_all_headers_have(pairs):
    try:
        known = headers.decode(pairs).request_id
    except WireError as error:
        known = error.request_id or ""
    assert headers.identify(pairs) == known


def test_many_repeated_lists_take_little_time_and_memory():
    pairs = [("baggage", b"a=1"), ("tracestate", b"b=2")] * 100_000
    tracemalloc.start()
    try:
        decoded = headers.decode(BASE + pairs)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert decoded.trace.baggage == b""
    assert peak < 3_000_000


def test_the_dict_of_choices_is_the_readers_own():
    pairs = [*BASE, ("spillway-path", b"a=b")]
    headers.decode(pairs).path["a"] = ("changed",)
    assert headers.decode(pairs).path == {"a": ("b",)}


@pytest.mark.parametrize(
    ("key", "raw"),
    [
        ("spillway-path", b"a"),
        ("spillway-path", b"=b"),
        ("spillway-path", b"a=b,"),
        ("spillway-path", b"a=,b"),
        ("spillway-path", b"a=b,b"),
        ("spillway-path", b"a=b;a=c"),
        ("spillway-path", b"a=b;"),
        ("spillway-path", b"a=b=c"),
        ("spillway-path", b"a=\xff"),
        ("spillway-path", b"a=" + b"b," * 3_000 + b"c"),
        ("spillway-lost", b","),
        ("spillway-lost", b"a,,b"),
        ("spillway-lost", b"a b"),
        ("spillway-lost", b"\xc3\xa9"),
        ("spillway-lost", b"a" * 250),
    ],
)
def test_absurd_names_are_an_error(key, raw):
    refused([*BASE, (key, raw)])


def test_caches_of_names_are_bounded():
    for index in range(3_000):
        headers.decode([*BASE, ("spillway-path", b"a=b%d" % index), ("spillway-lost", b"c%d" % index)])
        headers.encode(Headers("q", 1, 2, Hop(f"s{index}", 0, 0, 0, 0), {"a": (f"b{index}",)}))
        hops.decode(hops.encode([Hop(f"s{index}", 0, 0, 0, 0)]))
    for cache in (headers._paths, headers._path_texts, headers._losses):
        assert len(cache) <= 1_024
    for function in (hops._name, hops._prefix):
        assert function.cache_info().currsize <= 1_024


def test_strange_names_do_not_keep_a_pipelines_own_out_of_the_caches():
    for index in range(3_000):
        hops.decode(hops.encode([Hop(f"strange{index}", 0, 0, 0, 0)]))
    for _ in range(2):
        before = [function.cache_info().hits for function in (hops._name, hops._prefix)]
        hops.decode(hops.encode([Hop("own", 0, 0, 0, 0)]))
    assert [function.cache_info().hits for function in (hops._name, hops._prefix)] == [hit + 1 for hit in before]


@given(st.lists(marks, max_size=5))
def test_hops_come_back_as_they_were(chain):
    assert hops.decode(hops.encode(chain)) == tuple(chain)


@given(st.binary(max_size=60))
def test_arbitrary_hops_are_hops_or_one_typed_error(raw):
    for data in (raw, b"\x01\x01" + raw, b"\x01\x02\x01a" + raw):
        reason = refusal(hops.decode, data)
        assert reason in (None, reasons.BAD_HEADERS)
        if reason is None:
            chain = hops.decode(data)
            assert hops.decode(hops.encode(chain)) == chain


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x01",
        b"\x02\x00",
        b"\x01\x41" + b"\x01a\0\0\0\0" * 65,
        b"\x01\x01\x00\0\0\0\0",
        b"\x01\x01\x01a\0\0\0",
        b"\x01\x01\x01a\0\0\0\0\0",
        b"\x01\x01\x01\xff\0\0\0\0",
        b"\x01\x01\x7fa\0\0\0\0",
        b"\x01\x01\xfa\x01" + b"s" * 250 + b"\0\0\0\0",
        b"\x01\x01\xff\xff\xff\xff\x7fa",
        b"\x01\x01\x01a" + b"\xff" * 9 + b"\x01" + b"\0\0\0",
    ],
)
def test_absurd_hops_are_an_error(raw):
    assert refusal(hops.decode, raw) == reasons.BAD_HEADERS


def test_more_hops_than_the_bound_are_not_sent():
    hop = Hop("s", 0, 0, 0, 0)
    assert len(hops.decode(hops.encode([hop] * hops.MAX_HOPS))) == hops.MAX_HOPS
    with pytest.raises(WireError):
        hops.encode([hop] * (hops.MAX_HOPS + 1))


def test_the_emitter_is_the_last_of_several_hops():
    chain = [Hop("a", 0, 0, 1, 0), Hop("b", 0, 0, 2, 0)]
    assert headers.decode([*BASE, ("spillway-hops", hops.encode(chain))]).hop == chain[1]
    assert headers.decode([*BASE, ("spillway-hops", hops.encode([]))]).hop is None
