"""Runs of offsets against plain sets."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from checkpoint.offsets import Runs, contains, union


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
