"""The tracker against a plain model: what is committable is the end of the finished run from the start."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.offsets import PartitionOffsets


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


def test_a_gap_after_the_last_finished_record_is_not_committed_over():
    offsets = PartitionOffsets(0)
    offsets.taken(3)
    offsets.done(3)
    offsets.taken(9)
    assert offsets.position == 4


def test_done_out_of_turn_is_an_error_and_changes_nothing():
    offsets = PartitionOffsets(0)
    for offset in (0, 1, 2):
        offsets.taken(offset)
    offsets.done(1)
    for wrong in (1, 3, -1):
        with pytest.raises(ValueError, match="not taken and unfinished"):
            offsets.done(wrong)
    offsets.done(0)
    with pytest.raises(ValueError, match="not taken and unfinished"):
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
