"""What is durable, open or unread, and who asks (rules 1, 2, 6, 7, 11)."""

import pytest

from spillway.checkpoint.durability import Stateless
from spillway.checkpoint.logs import Fate, Logs
from spillway.checkpoint.version_log import Base, Void
from spillway.checkpoint.versions import INITIAL, Mark, Version
from spillway.lineage.errors import CheckpointError
from tests.unit.checkpoint.stories import A, B, Story, mark

DURABLE, DEAD, OPEN, UNREAD = Fate.DURABLE, Fate.DEAD, Fate.OPEN, Fate.UNREAD


# Durable (rule 6) ---------------------------------------------------------------------------------------------------


def test_earlier_versions_do_not_wait_for_later_ones():
    story = Story()
    story.complete(B, 1, mark(A, 1, 1))
    story.complete(B, 2, mark(A, 1, 2))
    story.complete(A, 1)
    assert story.fate(B, 1, 1) is DURABLE
    assert story.fate(B, 1, 2) is OPEN
    assert story.logs.newest_durable(B) == Version(1, 1)
    assert story.logs.candidate(B) == Version(1, 2)


# Epochs (rules 1 and 7) ---------------------------------------------------------------------------------------------


def test_between_fence_and_base_nothing_of_the_old_epoch_is_dead():
    story = Story()
    story.complete(A, 1)
    story.complete(A, 2, mark(B, 1, 1))
    story.fence(A, 2)
    assert story.fate(A, 1, 2) is OPEN
    assert story.fate(A, 1, 3) is OPEN
    story.complete(B, 1)
    assert story.fate(A, 1, 2) is DURABLE


def test_of_an_epoch_that_was_not_read_yet_nothing_is_known():
    story, asked = Story(), []
    story.logs.on_unread = lambda: asked.append(1)
    assert story.fate(A, 2, 1) is UNREAD
    assert asked  # to read on
    story.complete(B, 1, mark(A, 2, 1))
    story.fence(A, 2)
    assert story.fate(A, 2, 1) is UNREAD
    assert story.fate(B, 1, 1) is OPEN
    story.logs.take(A, Base(2, "m2", INITIAL, ((2, INITIAL),)))
    assert story.fate(A, 2, 1) is OPEN
    story.complete(A, 1)
    assert story.fate(B, 1, 1) is DURABLE


# Its users ----------------------------------------------------------------------------------------------------------


def test_without_stateful_stages_all_may_leave_and_nothing_is_dead():
    assert Stateless().durable(mark(A, 1, 1))
    assert not Stateless().dead(mark(A, 1, 1))


def test_a_shard_that_the_pipeline_does_not_have_is_named():
    with pytest.raises(CheckpointError, match="no stateful shard z/3"):
        Logs([A]).fate(Mark("z", 3, Version(1, 1)))


def test_a_manifest_that_rests_on_a_foreign_shard_counts_for_nobody_and_stops_nobody():
    """It raised in every member, in the gate and in every stage, half taken, and again at each record behind it."""
    story = Story()
    story.complete(B, 1, mark(A, 1, 1))
    assert not story.complete(B, 2, mark(("away", 0), 1, 1), mark(A, 1, 1))
    assert story.fate(B, 1, 2) is OPEN
    story.complete(A, 1)
    assert story.logs.newest_durable(B) == story.logs.candidate(B) == Version(1, 1)
    assert story.logs.log(B).void == {Void.FOREIGN: 1}
    assert story.complete(B, 2)  # the primary's own; no key is appended twice, but this is another's doing
    assert story.logs.newest_durable(B) == Version(1, 2)


def test_a_claimant_is_told_of_a_foreign_manifest_above_its_base():
    """Rule 16: of an older spec's manifest something may have been released."""
    story = Story()
    story.complete(B, 1)
    story.complete(B, 5, mark(("away", 0), 1, 1))
    assert story.logs.doubtful(B) == Version(1, 5)
    story.complete(B, 4)
    story.fence(B, 2)
    assert story.logs.doubtful(B) == Version(1, 5)
    story.logs.take(B, Base(2, "m2", Version(1, 4), ((1, INITIAL), (2, Version(1, 4)))))  # an operator's
    assert story.logs.doubtful(B) is None


def test_a_later_version_ends_the_doubt():
    story = Story()
    story.complete(B, 5, mark(("away", 0), 1, 1))
    story.complete(B, 5)
    assert story.logs.doubtful(B) is None


def test_memory_is_what_raises_the_demand_on_another_shard():
    story = Story()
    for n in range(1, 1_001):
        story.complete(B, n, mark(A, 1, 1 + n // 100))
    assert story.logs.waiting(B) <= 11
    story.complete(A, 500)
    assert story.logs.waiting(B) == 0
    assert story.fate(B, 1, 1_000) is DURABLE


def test_a_long_backlog_costs_no_more_per_record():
    """Each entry is looked at when it comes and when it goes: count the judgements."""

    class Counting(Logs):
        judged = 0

        def fate(self, mark):
            Counting.judged += 1
            return super().fate(mark)

    story = Story()
    story.logs = Counting([A, B])
    for place in (A, B):
        story.reign(place, 1, INITIAL)
        story.logs.caught_up(place)
    for n in range(1, 2_001):
        story.complete(B, n, mark(A, 1, n))
    for n in range(1, 2_001):
        story.complete(A, n)
    assert story.fate(B, 1, 2_000) is DURABLE
    assert Counting.judged < 6 * 4_000
