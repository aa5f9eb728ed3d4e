"""The tracker against a plain model: what is committable is the end of the finished run from the start."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.checkpoint.notes import Note, decode, merge
from spillway.checkpoint.offsets import PartitionOffsets, Runs, contains, union
from spillway.lineage.errors import CheckpointError


@given(st.data())
def test_position_is_the_end_of_the_finished_run(data):
    start = data.draw(st.integers(0, 5))
    gaps = data.draw(st.lists(st.integers(1, 4), max_size=30))
    offsets = PartitionOffsets(start)
    taken, finished, position = [], set(), start
    last = start - 1
    pending = list(gaps)
    while pending or len(finished) < len(taken):
        unfinished = [offset for offset in taken if offset not in finished]
        if pending and (not unfinished or data.draw(st.booleans())):
            last += pending.pop()
            assert offsets.taken(last)
            taken.append(last)
        else:
            offset = data.draw(st.sampled_from(unfinished))
            offsets.done(offset)
            finished.add(offset)
        for offset in taken:
            if offset not in finished:
                break
            position = max(position, offset + 1)
        unfinished = [offset for offset in taken if offset not in finished]
        assert offsets.position == position
        assert offsets.unfinished == len(unfinished)
        assert offsets.lowest_unfinished == (unfinished[0] if unfinished else None)
        assert offsets.held == len([offset for offset in taken if offset >= position])


def test_a_record_is_taken_once_and_not_below_the_start():
    offsets = PartitionOffsets(10)
    assert not offsets.taken(9)
    assert offsets.taken(10)
    assert not offsets.taken(10)


def test_done_out_of_turn_is_an_error_and_changes_nothing():
    offsets = PartitionOffsets(0)
    for offset in (0, 1, 2):
        offsets.taken(offset)
    offsets.done(1)
    for wrong in (1, 3, -1):
        with pytest.raises(ValueError, match="not in progress"):
            offsets.done(wrong)
    offsets.done(0)
    with pytest.raises(ValueError, match="not in progress"):
        offsets.done(0)
    assert offsets.position == 2


def test_a_held_record_needs_one_more_done():
    offsets = PartitionOffsets(0)
    offsets.taken(0)
    offsets.hold(0)
    offsets.done(0)
    assert offsets.position == 0
    offsets.done(0)
    assert offsets.position == 1


# Notes beside committed offsets: short, versioned, and never misread.

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


# Runs of offsets against plain sets.


def offsets_of(runs):
    return {offset for start, end in runs for offset in range(start, end)}


@given(st.lists(st.integers(0, 30), unique=True))
def test_offsets_that_touch_are_one_run(offsets):
    runs = Runs()
    for offset in offsets:
        runs.add(offset)
    pairs = runs.pairs()
    assert offsets_of(pairs) == set(offsets)
    assert all(before[1] < after[0] for before, after in pairwise(pairs))
    for start, end in pairs:
        assert runs.pop(start + 1) is None or start + 1 == end
        assert runs.pop(start) == end
    assert runs.pairs() == ()


_runs = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6)).map(lambda run: (run[0], sum(run))))


@given(_runs, st.integers(0, 15))
def test_a_union_is_cut_at_its_least_offset(runs, least):
    joined = union(runs, least)
    assert offsets_of(joined) == {offset for offset in offsets_of(runs) if offset >= least}
    assert all(before[1] < after[0] for before, after in pairwise(joined))
    assert all(contains(joined, offset) == (offset in offsets_of(joined)) for offset in range(30))
