"""Notes beside committed offsets: short, versioned, and never misread."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.durability import Stateless
from checkpoint.notes import Note, decode, merge
from lineage.errors import CheckpointError

SPANS = st.lists(
    st.tuples(st.integers(0, 10**12), st.integers(0, 10_000)).map(lambda s: (s[0], s[0] + s[1])), max_size=60
)


@given(SPANS, st.integers(0, 2 * 10**12), st.none() | st.integers(0, 10**12))
def test_a_note_comes_back_as_it_went_and_is_short(spans, committed, egress):
    note = Note(merge(spans, committed), egress)
    text = note.encode(committed)
    assert decode(text, committed) == note
    assert len(text) < 1_000


@given(SPANS, st.integers(0, 2 * 10**12))
def test_merging_covers_everything_below_the_committed_offset(spans, committed):
    merged = merge(spans, committed)
    for start, end in spans:
        if start < min(end, committed):
            assert any(low <= start and min(end, committed) <= high for low, high in merged)
    assert all(low < high <= committed for low, high in merged)
    assert list(merged) == sorted(merged)


def test_an_empty_note_asks_for_nothing():
    assert decode("", 7) == Note()


def test_one_open_span_is_written_without_its_end():
    assert Note(((5, 9),)).encode(9) == "r1:5"
    assert decode("r1:5", 9) == Note(((5, 9),))
    assert decode("r1:", 9) == Note()


@given(st.text(min_size=1).filter(lambda text: not text.startswith("r1:")))
def test_another_tools_note_stops_the_stage(text):
    with pytest.raises(CheckpointError, match="written by another version"):
        decode(text, 5)


@pytest.mark.parametrize("text", ["r2:5", "r1:5-", "r1:5,7-9", "r1:5;e", "r1:-3", "r1:٣", "r1:5;e1x"])
def test_a_note_that_is_not_quite_right_stops_the_stage(text):
    with pytest.raises(CheckpointError):
        decode(text, 50)


def test_without_state_everything_may_leave():
    assert Stateless().may_release(())
