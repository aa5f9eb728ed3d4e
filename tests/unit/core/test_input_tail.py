"""What a member keeps of its input: enough for any base that a promotion may start from, and no more."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.core import input_tail
from spillway.agents.core.input_tail import InputTail
from spillway.checkpoint.notes import Note, decode


@dataclass(frozen=True)
class Rec:
    offset: int
    value: bytes | None = b"x"


@pytest.fixture
def tail():
    decoded = []

    def envelope(record):
        assert record.value is None
        decoded.append(record.offset)
        return None if record.offset == 13 else record

    made = InputTail(
        strip=lambda record: replace(record, value=None), envelope=envelope, most_records=10, most_bytes=99
    )
    made.decoded = decoded
    made.start(0, 10, "")
    return made


def fill(tail, offsets):
    return [tail.append(0, Rec(offset), 5) for offset in offsets]


def offsets(records):
    return [record.offset for record in records]


def test_what_was_read_comes_back_from_any_position_on(tail):
    assert all(fill(tail, range(10, 15)))
    assert offsets(tail.since(0, 12)) == [12, 13, 14]
    assert offsets(tail.since(0, 10)) == [10, 11, 12, 13, 14]


def test_what_is_read_again_is_not_taken_again(tail):
    fill(tail, [10, 11, 14])
    assert fill(tail, [9, 11, 13, 14, 15]) == [False, False, False, False, True]
    assert tail.next(0) == 16


def test_below_the_durable_position_only_the_spans_are_kept_without_values(tail):
    fill(tail, range(10, 20))
    tail.trim(0, 16, Note(((11, 14),)).encode(16))
    assert tail.held == 4
    assert offsets(tail.since(0, 10)) == [16, 17, 18, 19]
    known = list(tail.remembered(0, 16, ((11, 14),)))
    assert [(record.offset, record.value) for record in known] == [(11, None), (12, None)]  # 13 is of no use to memory


def test_a_newer_base_finds_its_memory_in_what_lies_below_it(tail):
    fill(tail, range(10, 18))
    tail.trim(0, 12, Note(((10, 12),)).encode(12))
    assert offsets(tail.remembered(0, 16, ((11, 16),))) == [11, 12, 14, 15]
    assert offsets(tail.since(0, 16)) == [16, 17]


def test_headers_are_decoded_in_bunches(tail):
    fill(tail, range(10, 18))
    tail.trim(0, 18, Note(((10, 18),)).encode(18))
    assert tail.settle(3)
    assert tail.decoded == [10, 11, 12]
    assert offsets(tail.remembered(0, 18, ((10, 18),))) == [10, 11, 12, 14, 15, 16, 17]
    assert not tail.settle(100)


def test_memory_shrinks_as_spans_do(tail):
    fill(tail, range(10, 18))
    tail.trim(0, 18, Note(((10, 18),)).encode(18))
    tail.settle(3)
    tail.trim(0, 18, Note(((16, 18),)).encode(18))
    assert offsets(tail.remembered(0, 18, ((0, 18),))) == [16, 17]
    assert len(tail) == 2


def test_an_older_position_changes_nothing(tail):
    fill(tail, range(10, 18))
    tail.trim(0, 16, "")
    tail.trim(0, 12, Note(((10, 12),)).encode(12))
    assert offsets(tail.since(0, 0)) == [16, 17]


@pytest.mark.parametrize(("count", "size"), [(10, 1), (4, 30)])
def test_it_is_full_by_records_or_by_bytes_until_it_is_trimmed(tail, count, size):
    for offset in range(10, 10 + count):
        assert not tail.full
        tail.append(0, Rec(offset), size)
    assert tail.full
    tail.trim(0, 11, "")
    assert not tail.full


def test_partitions_are_apart(tail):
    tail.start(3, 0, "")
    tail.append(3, Rec(0), 1)
    tail.append(0, Rec(10), 1)
    assert tail.partitions == [0, 3]
    assert (offsets(tail.since(0, 0)), offsets(tail.since(3, 0))) == ([10], [0])


def test_what_was_recalled_comes_before_what_was_read(tail):
    tail.start(1, 20, Note(((5, 8),)).encode(20))
    tail.recall(1, [Rec(5, None), Rec(6, None)])
    tail.append(1, Rec(20), 1)
    assert offsets(tail.remembered(1, 20, ((6, 8),))) == [6]
    assert offsets(tail.remembered(1, 21, ((5, 8), (20, 21)))) == [5, 6, 20]


def test_what_a_base_remembers_and_was_not_read_is_told(tail):
    fill(tail, range(10, 14))
    assert tail.missing(0, 20, ((9, 12), (13, 16), (18, 20))) == ((14, 16), (18, 20))
    assert tail.missing(0, 14, ((9, 14),)) == ()


@pytest.mark.parametrize("held", [range(10, 18), (10, 11, 14, 15, 17), (12, 17)])
def test_one_record_comes_back_by_its_offset_whatever_gaps_there_are(tail, held):
    fill(tail, held)
    assert [offset for offset in range(8, 20) if tail.at(0, offset) is not None] == list(held)
    assert all(tail.at(0, offset).offset == offset for offset in held)
    tail.trim(0, 15, "")
    assert tail.at(0, 14) is None
    assert tail.at(0, 17).offset == 17


def test_what_is_held_for_a_join_does_not_make_it_full(tail):
    fill(tail, range(10, 22))
    assert tail.full
    tail.excused = 5
    assert not tail.full
    fill(tail, range(22, 25))
    assert tail.full


APART = 1_000  # offsets that a note tells apart


@given(
    steps=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 6), st.integers(0, 9)), max_size=60),
    least=st.integers(1, 12),
)
def test_below_the_position_lies_at_most_twice_what_the_spans_want(steps, least):
    """The oldest spans may stay for ever, as of a predecessor that is silent."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(input_tail, "_LOOK_THROUGH", least, raising=False)
        tail = InputTail(strip=lambda record: record, envelope=lambda record: record)
        tail.start(0, 0, "")
        wanted, position, most = [], 0, 0
        for more, kept, settled in steps:
            came = range(position, position + APART * more, APART)
            fill(tail, came)
            wanted = [*wanted, *came][:kept]
            position = came.stop
            spans = tuple((offset, offset + 1) for offset in wanted)
            note = Note(spans).encode(position)
            most = max(most, sum(end - start for start, end in decode(note, position).spans))
            tail.trim(0, position, note)
            tail.settle(settled)
            assert offsets(tail.remembered(0, position, spans)) == wanted
            assert len(tail) <= max(least, 2 * most)
