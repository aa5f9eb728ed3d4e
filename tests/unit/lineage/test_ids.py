import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spillway.lineage.ids import RequestIds, is_request_id, made_at, new_request_id
from spillway.lineage.keys import ending_for, partition_for


def test_an_id_of_ours_tells_when_it_was_made():
    ids = RequestIds()
    before = time.time()
    made = [new_request_id(), ids.new(), ids.new_in({1}, 4)]
    after = time.time()
    assert all(before - 0.001 <= made_at(each) <= after for each in made)
    assert all(map(is_request_id, made))
    assert made_at(OURS) == 0x019AC46B1F00 / 1_000


def test_ids_differ_and_sort_by_their_time(monkeypatch):
    ids, other = RequestIds(), RequestIds()
    now = 1_700_000_000_000_000_000
    monkeypatch.setattr("spillway.lineage.ids.time.time_ns", lambda: now)
    made = [each.new() for each in (ids, other) for _ in range(1_000)]
    assert len(set(made)) == 2_000
    now += 1_000_000
    assert max(made) < ids.new()
    assert made_at(ids.new()) == 1_700_000_000.001


IDS = RequestIds()
OURS = "019ac46b1f00-0123456789abcd-0000002a"


@pytest.mark.parametrize(
    "foreign",
    [
        "",
        "mine",
        "0" * 36,
        "0b5c9f0e-8a3d-4c57-9d0e-3f2a1b4c5d6e",
        "019ac46b-1f00-7abc-8def-0123456789ab",  # a UUIDv7 of somebody's order, which was made when that was
        OURS.upper(),
        OURS + "\n",
        OURS + "/taste",  # feedback, whenever it comes
        OURS + ".1-0a1b2c3d",  # a letter that is retried
        OURS[1:],
        "x" + OURS[1:],
        "0123456789abcdef-12-1",  # a row of an offline job
    ],
)
def test_a_foreign_id_tells_nothing(foreign):
    assert made_at(foreign) is None


@given(st.integers(1, 64), st.sets(st.integers(0, 63), min_size=1))
def test_an_id_can_be_made_for_a_partition(partitions, wanted):
    wanted = {each % partitions for each in wanted}
    made = [IDS.new_in(wanted, partitions) for _ in range(20)]
    assert {partition_for(each.encode(), partitions) for each in made} <= wanted
    assert len(set(made)) == 20


@given(st.binary(max_size=40), st.integers(1, 64))
def test_any_stem_of_whole_words_can_be_ended(stem, partitions):
    assume(len(stem) % 4 == 0)
    found = ending_for(stem, {partitions - 1}, partitions)
    assert partition_for(stem + found.encode(), partitions) == partitions - 1


def test_where_no_ending_is_found_there_is_one_all_the_same():
    assert len(ending_for(b"abcd", set(), 4)) == 4
