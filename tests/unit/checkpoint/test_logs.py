"""All logs together: durable, dead, open, unread; for the gate, backups and claimants (rules 1, 2, 3, 6, 7, 14)."""

from __future__ import annotations

import pytest

from checkpoint.durability import Stateless
from checkpoint.logs import Fate, Logs
from checkpoint.version_log import Base, Fence, Manifest
from checkpoint.versions import INITIAL, Mark, Version
from lineage.errors import CheckpointError
from lineage.hops import Hop
from lineage.marks import merged

A, B, C = ("a", 0), ("b", 0), ("c", 0)
DURABLE, DEAD, OPEN, UNREAD = Fate.DURABLE, Fate.DEAD, Fate.OPEN, Fate.UNREAD


def mark(place, epoch, n):
    return Mark(*place, Version(epoch, n))


class Story:
    """Logs, and short words for what is written to them."""

    def __init__(self, *places, caught_up=True):
        self.logs = Logs(places or (A, B, C))
        for place in places or (A, B, C):
            self.reign(place, 1, INITIAL)
            if caught_up:
                self.logs.caught_up(place)

    def fence(self, place, epoch):
        self.logs.take(place, Fence(epoch, f"m{epoch}"))

    def reign(self, place, epoch, base):
        self.fence(place, epoch)
        history = self.logs.log(place).history.begun(epoch, base)
        self.logs.take(place, Base(epoch, f"m{epoch}", base, history.links))

    def complete(self, place, n, *requires):
        history = self.logs.log(place).history
        version = Version(history.epoch, n)
        return self.logs.take(place, Manifest(version, history.links, requires, f"m{history.epoch}"))

    def fate(self, place, epoch, n):
        return self.logs.fate(mark(place, epoch, n))


# Durable (rule 6) ---------------------------------------------------------------------------------------------------


def test_a_version_is_durable_with_its_manifest_if_it_rests_on_nothing_else():
    story = Story()
    assert story.fate(A, 1, 1) is OPEN
    story.complete(A, 1)
    assert story.fate(A, 1, 1) is DURABLE
    assert story.fate(A, 1, 2) is OPEN


def test_the_initial_state_is_durable():
    assert Logs([A]).fate(Mark("a", 0, INITIAL)) is DURABLE


def test_a_manifest_may_stand_for_versions_that_were_skipped():
    """The paper prints <= in line 8 of Algorithm 2; it is n at or above that is waited for."""
    story = Story()
    story.complete(A, 5)
    assert story.fate(A, 1, 3) is DURABLE
    assert story.fate(A, 1, 6) is OPEN


def test_a_version_waits_for_what_its_requests_rest_on():
    """Fig. 7: s_b is applied only once s_a is durable, however late that comes."""
    story = Story()
    story.complete(B, 1, mark(A, 1, 1))
    assert story.fate(B, 1, 1) is OPEN
    story.complete(A, 1)
    assert story.fate(B, 1, 1) is DURABLE


def test_it_waits_through_several_stages_and_for_all_of_a_joins_parts():
    story = Story(A, B, C, ("d", 0))
    story.complete(("d", 0), 1, mark(B, 1, 1), mark(C, 1, 2))
    story.complete(B, 1, mark(A, 1, 3))
    story.complete(C, 2)
    assert story.fate(("d", 0), 1, 1) is OPEN
    story.complete(A, 2)
    assert story.fate(B, 1, 1) is OPEN
    story.complete(A, 3)
    assert story.fate(("d", 0), 1, 1) is DURABLE


def test_a_version_rests_on_what_the_versions_before_it_rest_on():
    story = Story()
    story.complete(B, 1, mark(A, 1, 1))
    story.complete(B, 2)
    assert story.fate(B, 1, 2) is OPEN
    story.complete(A, 1)
    assert story.fate(B, 1, 2) is DURABLE


def test_earlier_versions_do_not_wait_for_later_ones():
    story = Story()
    story.complete(B, 1, mark(A, 1, 1))
    story.complete(B, 2, mark(A, 1, 2))
    story.complete(A, 1)
    assert story.fate(B, 1, 1) is DURABLE
    assert story.fate(B, 1, 2) is OPEN
    assert story.logs.newest_durable(B) == Version(1, 1)
    assert story.logs.candidate(B) == Version(1, 2)


def test_a_manifest_that_requires_an_earlier_version_of_its_own_shard_does_not_wait_for_itself():
    story = Story()
    story.complete(B, 1)
    story.complete(B, 3, mark(B, 1, 1), mark(B, 1, 3))
    assert story.fate(B, 1, 3) is DURABLE


# Epochs (rules 1 and 7) ---------------------------------------------------------------------------------------------


def test_a_reply_that_waits_for_one_epochs_version_is_not_released_by_anothers():
    story = Story()
    story.complete(A, 9)
    story.reign(A, 2, Version(1, 9))
    story.complete(A, 10)
    assert story.fate(A, 2, 10) is DURABLE
    assert story.fate(A, 1, 10) is DEAD


def test_an_older_epochs_durable_version_is_alive():
    story = Story()
    story.complete(A, 9)
    story.reign(A, 2, Version(1, 9))
    assert story.fate(A, 1, 9) is DURABLE
    assert story.fate(A, 1, 4) is DURABLE


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
    story = Story()
    assert story.fate(A, 2, 1) is UNREAD
    story.complete(B, 1, mark(A, 2, 1))
    story.fence(A, 2)
    assert story.fate(A, 2, 1) is UNREAD
    assert story.fate(B, 1, 1) is OPEN
    story.logs.take(A, Base(2, "m2", INITIAL, ((2, INITIAL),)))
    assert story.fate(A, 2, 1) is OPEN
    story.complete(A, 1)
    assert story.fate(B, 1, 1) is DURABLE


# Dead (rules 7 and 14) ----------------------------------------------------------------------------------------------


def fig_6():
    """Fig. 6 of the paper: the state of a is delayed, that of b is written, then a's primary dies."""
    story = Story()
    story.complete(A, 1)
    story.complete(B, 1, mark(A, 1, 1))
    story.complete(B, 2, mark(A, 1, 2))
    story.complete(C, 1, mark(B, 1, 1))
    story.complete(C, 2, mark(B, 1, 2))
    story.reign(A, 2, Version(1, 1))
    return story


def test_what_rests_on_a_dead_version_is_dead_however_far_down():
    story = fig_6()
    assert story.fate(A, 1, 2) is DEAD
    assert story.fate(B, 1, 2) is DEAD
    assert story.fate(C, 1, 2) is DEAD
    assert [story.fate(place, 1, 1) for place in (A, B, C)] == [DURABLE] * 3


def test_versions_that_come_after_a_dead_one_are_dead_with_or_without_manifest():
    story = fig_6()
    assert story.fate(B, 1, 3) is DEAD
    assert story.complete(B, 3)
    assert story.fate(B, 1, 3) is DEAD


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


def test_the_base_is_the_newest_complete_version_that_is_not_dead_whether_durable_or_not():
    story = Story()
    story.complete(B, 1)
    story.complete(B, 2, mark(A, 1, 1))
    story.fence(B, 2)
    assert not story.complete(B, 3)
    assert story.logs.newest_durable(B) == Version(1, 1)
    assert story.logs.candidate(B) == Version(1, 2)


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


def test_a_base_without_a_manifest_was_durable():
    story = Story(caught_up=False)
    story.reign(A, 2, Version(1, 7))
    story.logs.caught_up(A)
    assert story.fate(A, 1, 7) is DURABLE
    assert story.fate(A, 1, 8) is DEAD


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


# Its users ----------------------------------------------------------------------------------------------------------


def hop(*marks):
    return Hop("s", 1, 0, 0, 0, marks)


def test_the_gate_releases_what_rests_on_durable_versions_alone():
    """Rule 11."""
    story = fig_6()
    assert story.logs.may_release([])
    assert story.logs.may_release([hop()])
    assert story.logs.may_release([hop(mark(A, 1, 1)), hop(mark(C, 1, 1))])
    for bad in (mark(A, 1, 2), mark(A, 2, 2), mark(A, 3, 9)):
        assert not story.logs.may_release([hop(mark(A, 1, 1), bad)])
    assert story.logs.is_dead([hop(mark(B, 1, 1)), hop(mark(A, 1, 2))])
    assert not story.logs.is_dead([hop(mark(A, 2, 2)), hop(mark(A, 3, 9))])


def test_without_stateful_stages_all_may_leave_and_nothing_is_dead():
    assert Stateless().may_release([hop()])
    assert not Stateless().is_dead([hop()])


def test_marks_together():
    story = fig_6()
    durable, dead, waits, unread = mark(A, 1, 1), mark(A, 1, 2), mark(A, 2, 2), mark(A, 3, 3)
    assert story.logs.judge([]) is DURABLE
    assert story.logs.judge([durable, durable]) is DURABLE
    assert story.logs.judge([durable, waits]) is OPEN
    assert story.logs.judge([waits, unread, durable]) is UNREAD
    assert story.logs.judge([unread, dead, durable]) is DEAD


def test_a_join_drops_what_the_other_part_contains():
    story = Story()
    story.complete(A, 9)
    story.reign(A, 2, Version(1, 9))
    old, new, dead = mark(A, 1, 9), mark(A, 2, 10), mark(A, 1, 10)
    assert merged([(old,), (new,)], story.logs.contains) == (new,)
    assert merged([(dead,), (new,)], story.logs.contains) == (dead, new)
    assert merged([(old,), (mark(A, 3, 11),)], story.logs.contains) == (old, mark(A, 3, 11))


def test_a_shard_that_the_pipeline_does_not_have_is_named():
    with pytest.raises(CheckpointError, match="no stateful shard z/3"):
        Logs([A]).fate(Mark("z", 3, Version(1, 1)))


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
