"""What is dead, what a claimant starts from, and what compaction has left (rules 3, 4, 7, 14)."""

import pytest

from spillway.checkpoint.logs import Fate
from spillway.checkpoint.versions import INITIAL, Version
from spillway.lineage.errors import CheckpointError
from tests.unit.checkpoint.stories import A, B, C, Story, fig_6, mark

DURABLE, DEAD, OPEN, UNREAD = Fate.DURABLE, Fate.DEAD, Fate.OPEN, Fate.UNREAD


# Dead (rules 7 and 14) ----------------------------------------------------------------------------------------------


def test_a_shard_whose_versions_are_dead_goes_back_to_the_newest_that_is_not():
    story = fig_6()
    assert story.logs.rollback(A) is None
    assert story.logs.rollback(B) == Version(1, 1)
    assert story.logs.candidate(B) == Version(1, 1)
    story.reign(B, 2, Version(1, 1))
    assert story.logs.rollback(B) is None
    assert story.logs.rollback(C) == Version(1, 1)
    story.complete(B, 2, mark(A, 2, 2))
    story.complete(A, 2)
    assert story.fate(B, 2, 2) is DURABLE
    assert story.fate(B, 1, 2) is DEAD


def test_a_claimant_that_did_not_know_better_may_start_from_a_dead_version_and_the_next_one_goes_back():
    """Two neighbouring primaries at once: b's claimant reads its fence before it has read a's base."""
    story = fig_6()
    story.reign(B, 2, Version(1, 2))
    assert story.logs.rollback(B) == Version(1, 1)
    story.complete(B, 3)
    assert story.fate(B, 2, 3) is DEAD
    story.reign(B, 3, Version(1, 1))
    assert story.fate(B, 3, 2) is OPEN


def test_a_version_skipped_by_a_dead_manifest_is_dead_as_none_can_start_from_it():
    story = Story()
    story.complete(B, 4)
    story.reign(A, 2, INITIAL)
    story.complete(B, 9, mark(A, 1, 1))
    assert story.fate(B, 1, 4) is DURABLE
    assert story.fate(B, 1, 5) is DEAD
    assert story.logs.rollback(B) == Version(1, 4)


def test_a_manifest_that_requires_a_dead_version_of_its_own_shard_is_dead():
    story = Story()
    story.complete(A, 1)
    story.reign(A, 2, Version(1, 1))
    story.complete(A, 2, mark(A, 1, 2))
    assert story.fate(A, 2, 2) is DEAD


# The base (rule 3) --------------------------------------------------------------------------------------------------


def test_a_base_older_than_a_durable_version_stops_everybody():
    """Mutation: base = the last durable version that I applied; here it was e1.v1, and the gate has seen e1.v2."""
    story = Story()
    story.complete(A, 1)
    story.complete(A, 2)
    with pytest.raises(CheckpointError, match=r"a/0: epoch 2 starts from e1\.v1, older than the durable e1\.v2"):
        story.reign(A, 2, Version(1, 1))


def test_no_claim_before_the_log_was_read_to_its_end():
    story = Story(caught_up=False)
    with pytest.raises(CheckpointError, match="was not read to its end"):
        story.logs.candidate(A)


# Compacted logs (rule 4) --------------------------------------------------------------------------------------------


def test_a_log_that_is_being_caught_up_with_makes_nothing_durable_or_dead_by_what_it_requires():
    """e1.v2 rested on something dead, and both later versions with it; its manifest is gone, that of e1.v3 not yet."""
    story = Story(caught_up=False)
    story.logs.caught_up(A)
    story.complete(B, 1)
    story.complete(B, 3)
    assert story.fate(B, 1, 3) is UNREAD
    story.reign(B, 2, Version(1, 1))
    assert story.fate(B, 1, 3) is DEAD
    assert story.fate(B, 1, 1) is UNREAD
    story.logs.caught_up(B)
    assert story.fate(B, 1, 1) is DURABLE


def test_a_reader_that_was_away_catches_up_again_before_it_judges():
    story = Story()
    story.complete(B, 1)
    story.logs.fell_behind(B)
    story.complete(B, 3)
    assert story.fate(B, 1, 1) is DURABLE
    assert story.fate(B, 1, 3) is UNREAD
    story.reign(B, 2, Version(1, 1))
    story.complete(B, 2)
    story.logs.caught_up(B)
    assert story.fate(B, 1, 3) is DEAD
    assert story.fate(B, 2, 2) is DURABLE


def test_a_dead_manifest_that_has_outlived_a_durable_one_below_it_does_not_drag_that_down():
    story = Story(caught_up=False)
    story.reign(A, 2, INITIAL)
    story.logs.caught_up(A)
    story.complete(B, 9, mark(A, 1, 1))  # e1.v8 was durable and is gone
    story.reign(B, 2, Version(1, 8))
    story.logs.caught_up(B)
    assert story.fate(B, 1, 8) is DURABLE
    assert story.fate(B, 1, 9) is DEAD
    assert story.logs.rollback(B) is None


def test_catching_up_finds_what_was_dead_all_along():
    story = Story(caught_up=False)
    for place in (A, C):
        story.logs.caught_up(place)
    story.complete(B, 1, mark(A, 1, 1))
    story.complete(C, 1, mark(B, 1, 1))
    story.reign(A, 2, INITIAL)
    assert story.fate(B, 1, 1) is UNREAD
    story.logs.caught_up(B)
    story.logs.caught_up(B)
    assert story.fate(B, 1, 1) is DEAD
    assert story.fate(C, 1, 1) is DEAD
