"""Which states a message rests on: what a stage passes on, and version 2 of the header that carries it."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.lineage import headers, hops, reasons
from spillway.lineage.errors import WireError
from spillway.lineage.headers import Headers
from spillway.lineage.hops import Hop
from spillway.lineage.marks import Mark, Version, merged, order

from .hostile_bytes import refusal

stages = st.sampled_from(["a", "b", "tracker", "é" * 30])
numbers = st.one_of(st.integers(1, 5), st.integers(1, 2**63 - 1))
marks = st.builds(Mark, stages, st.integers(0, 3), st.builds(Version, numbers, numbers))
lists = st.lists(marks, max_size=6).map(lambda found: merged([found]))
hop_lists = st.lists(
    st.builds(Hop, stages, *[st.integers(0, 2**63 - 1)] * 4, lists), min_size=1, max_size=3
)  # one today; the format holds more


def mark(stage, epoch, n, shard=0):
    return Mark(stage, shard, Version(epoch, n))


A5, A7, B3 = mark("a", 1, 5), mark("a", 1, 7), mark("b", 2, 3)


# What several messages rest on together -----------------------------------------------------------------------------


def test_shards_of_a_stage_are_apart():
    other = mark("a", 1, 9, shard=1)
    assert merged([(A5,), (other,)]) == (A5, other)


def test_versions_of_two_epochs_both_stay_as_one_may_be_dead():
    """Rule 7: e1.v7 may lie beyond the base of epoch 2; only the shard's history tells."""
    after = mark("a", 2, 9)
    assert merged([(A7,), (after,)]) == (A7, after)


def test_n_alone_does_not_make_a_version_later():
    with pytest.raises(TypeError):
        assert Version(1, 9) < Version(2, 1)


@given(st.lists(lists, max_size=4))
def test_merging_is_idempotent_commutative_and_in_order(parts):
    once = merged(parts)
    assert merged([once]) == merged([once, once]) == merged(reversed(parts)) == once
    assert list(once) == sorted({order(kept): kept for kept in once}.values(), key=order)  # one a place and epoch
    for part in parts:
        for one in part:
            assert any(order(kept) == order(one) and kept.version.n >= one.version.n for kept in once)


# On the wire --------------------------------------------------------------------------------------------------------


@given(hop_lists)
def test_hops_with_marks_come_back(chain):
    data = hops.encode(chain)
    assert hops.decode(data) == tuple(chain)
    bare = [Hop(hop.stage, hop.epoch, hop.partition, hop.sequence, hop.committed) for hop in chain]
    assert hops.growth(chain) == len(data) - len(hops.encode(bare))


@given(st.lists(st.tuples(stages, st.sampled_from([(A5,), (A7,), (A5, B3), (A7, B3), ()])), max_size=12))
def test_a_header_does_not_depend_on_those_before_it(several):
    """What was written and read last is remembered; the same marks stand otherwise in another stage's hop."""
    for stage, carried in several:
        hop = Hop(stage, 1, 2, 3, 2, carried)
        assert hops.decode(hops.encode([hop])) == (hop,)


def test_marks_over_the_limit_are_refused_also_when_they_were_read_just_before():
    carried = tuple(mark(f"s{number:02}", 1, 1) for number in range(hops.MAX_MARKS))
    hop = Hop("t", 1, 2, 3, 2, carried)
    data = hops.encode([hop])
    assert hops.decode(data) == (hop,)
    with pytest.raises(WireError):
        hops.decode(data[:1] + b"\x02" + data[2:] * 2)


def test_without_marks_the_header_is_as_it_was():
    hop = Hop("detect", 3, 11, 700, 650)
    assert hops.encode([hop]) == b"\x01\x01\x06detect\x03\x0b\xbc\x05\x8a\x05"
    assert hops.decode(b"\x01\x01\x06detect\x03\x0b\xbc\x05\x8a\x05") == (hop,)
    assert hops.growth([hop]) == 0


def test_marks_on_the_wire():
    hop = Hop("b", 1, 2, 3, 2, (mark("a", 1, 5), mark("b", 2, 300, shard=1)))
    assert hops.encode([hop]) == b"\x02\x01\x01b\x01\x02\x03\x02" + b"\x02\x01a\x00\x01\x05" + b"\x00\x01\x02\xac\x02"


def test_a_stage_that_changes_its_state_adds_five_bytes():
    hop = Hop("recommender", 4, 3, 90_000, 89_990, (mark("recommender", 4, 100),))
    assert hops.growth([hop]) == 5  # the count, no name, shard, epoch, n


def test_marks_travel_in_the_headers_of_a_message():
    hop = Hop("b", 1, 2, 3, 2, (A5, B3))
    assert headers.decode(headers.encode(Headers("q", 1, 2, hop))).hop == hop


@pytest.mark.parametrize(
    "raw",
    [
        b"\x03\x01\x01a\0\0\0\0",
        b"\x02\x00",
        b"\x02\x01\x01a\0\0\0\0\0",  # version 2 without a mark
        b"\x02\x01\x01a\0\0\0\0",
        b"\x02\x01\x01a\0\0\0\0\x01",
        b"\x02\x01\x01a\0\0\0\0\x01\x01b\0\x01",
        b"\x02\x01\x01a\0\0\0\0\x01\x01b\0\x01\x01\x00",
        b"\x02\x01\x01a\0\0\0\0\x01\x01b\0\x00\x01",  # epoch 0
        b"\x02\x01\x01a\0\0\0\0\x01\x01b\0\x01\x00",  # n = 0
        b"\x02\x01\x01a\0\0\0\0\x01\x01\xff\0\x01\x01",
        b"\x02\x01\x01a\0\0\0\0\x01\xfa\x01" + b"s" * 250 + b"\0\x01\x01",
        b"\x02\x01\x01a\0\0\0\0\x01\x01b" + b"\xff" * 9 + b"\x01\x01\x01",
        b"\x02\x01\x01a\0\0\0\0\x02\x01c\0\x01\x01\x01b\0\x01\x01",  # out of order
        b"\x02\x01\x01a\0\0\0\0\x02\x01b\0\x01\x01\x01b\0\x01\x02",  # a place and epoch twice
        b"\x02\x01\x01a\0\0\0\0\x41" + b"".join(b"\x01b\0" + bytes((n, 1)) for n in range(1, 66)),
        b"\x02\x02"
        + b"".join(b"\x01a\0\0\0\0\x21" + b"".join(b"\0\0" + bytes((n, 1)) for n in range(1, 34)) for _ in "12"),
    ],
)
def test_absurd_marks_are_an_error(raw):
    assert refusal(hops.decode, raw) == reasons.BAD_HEADERS


@pytest.mark.parametrize(
    "bad",
    [
        (B3, A5),
        (A5, A7),
        (Mark("a", -1, Version(1, 1)),),
        (Mark("a", 0, Version(0, 1)),),
        (Mark("a", 0, Version(1, 0)),),
        (Mark("a", 0, Version(1, 1 << 63)),),
        (Mark("", 0, Version(1, 1)),),
        (Mark("s" * 250, 0, Version(1, 1)),),
        tuple(mark("a", epoch, 1) for epoch in range(1, hops.MAX_MARKS + 2)),
    ],
)
def test_what_would_not_be_taken_is_not_sent(bad):
    assert refusal(hops.encode, [Hop("s", 1, 0, 0, 0, bad)]) == reasons.NOT_ENCODABLE


def test_bytes_that_were_tampered_with_raise_one_error_or_mean_something_else():
    base = hops.encode([Hop("b", 1, 2, 300, 299, (mark("a", 1, 5), mark("b", 2, 300, shard=1)))])
    chance = random.Random(0)
    for _ in range(3_000):
        data = bytearray(base)
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(data))
            if chance.random() < 0.3:
                del data[place:]
                break
            data[place] = chance.randrange(256)
        if not data:
            continue
        reason = refusal(hops.decode, bytes(data))
        assert reason in (None, reasons.BAD_HEADERS)
        if reason is None:
            chain = hops.decode(bytes(data))
            assert hops.decode(hops.encode(chain)) == chain
