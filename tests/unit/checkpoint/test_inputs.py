"""Which positions an input's log can serve, case by case."""

import pytest

from spillway.checkpoint.inputs import InputLostError, WaysOut, is_lost
from spillway.lineage.ports import Bounds


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
