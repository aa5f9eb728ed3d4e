"""How far a log is known, over gaps in reading."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.checkpoint.following import Following
from spillway.checkpoint.inputs import InputLostError, WaysOut, is_lost
from spillway.lineage.ports import Bounds


def test_the_first_end_that_is_reached_is_caught_up_with():
    log = Following(30.0, 0.0)
    assert log.wants_end(0.0)
    log.end(0.0, 5)
    assert not log.wants_end(0.1)
    assert log.read(4) == (False, [])
    assert log.read(5) == (True, [])
    assert log.read(6) == (False, [])


def test_an_empty_log_is_caught_up_with_at_once():
    log = Following(30.0, 0.0)
    log.end(0.0, 0)
    assert log.read(0) == (True, [])


def test_a_wish_is_fulfilled_at_the_end_that_was_asked_for_after_it():
    log = Following(30.0, 0.0)
    log.end(0.0, 3)
    log.read(3)
    log.wish("a")
    assert log.wants_end(0.1)
    log.end(0.1, 8)
    log.wish("b")
    assert log.read(8) == (False, ["a"])
    log.end(0.2, 8)
    assert log.read(0) == (False, ["b"])


def test_an_idle_log_is_asked_now_and_then_and_is_not_behind():
    log = Following(30.0, 0.0)
    now = 0.0
    log.end(now, 0)
    log.read(0)
    for _ in range(20):
        now += 6.0
        assert log.wants_end(now)
        assert not log.behind(now)
        log.end(now, 0)
        assert log.read(0) == (False, [])


def test_who_was_away_for_too_long_says_so_once_and_catches_up_anew():
    log = Following(30.0, 0.0)
    log.end(0.0, 2)
    log.read(2)
    log.end(6.0, 9)  # is not reached: the broker is away
    assert not log.behind(30.0)
    assert log.behind(31.0)
    assert not log.behind(32.0)
    assert log.read(8) == (False, [])
    assert log.read(9) == (True, [])
    assert log.behind(37.0)  # what was appended after 6.0 may be compacted by now
    log.end(37.0, 9)
    assert log.read(0) == (True, [])
    assert not log.behind(66.0)


@given(st.lists(st.tuples(st.sampled_from("ear"), st.integers(0, 9)), max_size=60))
def test_what_is_said_is_true(steps):
    """Against a log that grows: while current, all that was appended before `now - away` has been read."""
    log = Following(10.0, 0.0)
    now, end, position, appended = 0.0, 0, 0, []
    for kind, amount in steps:
        now += amount
        if kind == "a":
            appended += [now] * amount
            end += amount
        elif kind == "e":
            log.end(now, end)
        else:
            log.behind(now)
            position = min(end, position + amount)
            log.read(position)
            if log.current and not log.behind(now):
                assert all(at >= now - 10.0 for at in appended[position:])


# Which positions an input's log can serve, case by case.


@pytest.mark.parametrize(
    ("position", "start", "end", "lost"),
    [
        (None, 0, 0, False),  # a new topic
        (None, 70, 90, False),  # nothing was read yet: nothing of ours was deleted
        (0, 0, 0, False),
        (40, 0, 90, False),
        (90, 0, 90, False),  # at the end
        (40, 40, 90, False),  # all that is done was deleted
        (90, 90, 90, False),  # an idle weekend and retention
        (39, 40, 90, True),  # one record was deleted unread
        (39, 90, 90, True),
        (0, 1, 1, True),
        (91, 0, 90, True),  # shortened
        (91, 90, 90, True),
        (3350, 0, 0, True),  # deleted and made again
        (3350, 0, 4000, False),  # made again and longer by now: nobody can tell
    ],
)
def test_a_position_is_lost_where_the_log_ends_below_it_or_begins_above_it(position, start, end, lost):
    assert is_lost(position, Bounds(start, end)) is lost


@pytest.mark.parametrize(("position", "lost"), [(90, False), (100, False), (101, True), (5, False)])
def test_markers_of_transactions_may_be_all_that_was_deleted_but_an_end_is_an_end(position, lost):
    assert is_lost(position, Bounds(95, 100), markers=True) is lost


def test_the_error_names_topic_partition_both_offsets_and_the_ways_out():
    ways_out = WaysOut("reset it", "begin anew")
    begins = str(InputLostError("p.a", 3, 39, Bounds(45, 90), ways_out))
    assert begins == (
        "p.a[3] is stopped: the next offset to read is 39, but the log begins at 45: 6 offsets were deleted before "
        "they were read. The other partitions go on. Restore the topic and start this process again; or reset it"
    )
    ends = str(InputLostError("p.a", 3, 91, Bounds(0, 7), ways_out))
    assert "the next offset to read is 91, but the log ends at 7: it lost records, or was deleted" in ends
    assert ends.endswith("; or begin anew")
