"""Who is primary, and how a member becomes one or stops being one, as the logs and the beats say."""

import pytest

from spillway.agents.live.stateful.transactions import transactional_id
from spillway.agents.run.log_reader import CONTROL
from spillway.checkpoint.promotion import Role
from spillway.checkpoint.versions import INITIAL
from spillway.lineage.errors import BrokerError, CheckpointError
from spillway.lineage.marks import Mark, Version
from spillway.lineage.replication import Claim, Fence, Report, Yield
from tests.unit.live.stateful.shard_doubles import PLACE, Shard


@pytest.fixture
def shard(monkeypatch):
    return Shard(monkeypatch)


# Promotion ----------------------------------------------------------------------------------------------------------


def test_the_others_wait_a_lease_for_member_0(shard):
    shard.members[1].begin()
    shard.clock.advance(0.99)
    assert not shard.doers[1].appended
    shard.clock.advance(0.02)
    assert [type(record) for record in shard.doers[1].appended] == [Claim]


def test_who_finds_its_own_predecessor_claims_at_once(shard):
    shard.append(CONTROL, Claim(*PLACE, 4, "p.learn.0.1@0"))
    shard.members[1].begin()
    assert shard.doers[1].appended[0].epoch == 5


def test_who_takes_part_after_a_primary_was_asked_to_yield_follows_it(shard):
    first, second = shard.members
    first.begin()
    shard.settle()
    shard.append(CONTROL, Yield(*PLACE, 1, "the operator", 0, "a planned switch"))
    assert not shard.doers[1].appended
    second.begin()
    assert [record.epoch for record in shard.doers[1].appended] == [2]


def test_who_takes_part_after_somebody_has_followed_follows_nobody(shard):
    first, second = shard.members
    first.begin()
    shard.settle()
    shard.append(CONTROL, Yield(*PLACE, 1, "the operator", 0, "a planned switch"))
    shard.append(CONTROL, Claim(*PLACE, 2, "p.learn.0.2@1"))
    second.begin()
    assert not shard.doers[1].appended


def test_what_is_wanted_while_the_logs_are_not_read_is_done_then(shard):
    shard.begun()
    member = shard.members[1]
    member.was_away()
    member.want("it is silent")
    assert not shard.doers[1].appended
    member.caught_up()
    member.caught_up()
    assert [type(record) for record in shard.doers[1].appended] == [Claim]


def test_a_fence_that_had_to_wait_is_not_appended_for_a_reign_that_is_over(shard):
    waiting = []
    shard.prepares(0, lambda _epoch, then: waiting.append(then))
    shard.members[0].begin()
    shard.settle()
    shard.fence(9, "faster")
    waiting.pop()()
    assert not shard.doers[0].appended
    assert shard.members[0].core.role is Role.BACKUP


def test_a_slow_claimant_that_has_lost_aborts_nothing_of_the_newer_reign(shard):
    """Its `init_transactions` came after the winner had begun, and ended the winner's process."""
    shard.begun()
    taken, slow = [], []

    def take_over(epoch):
        taken.append(transactional_id("p.learn.state", 0, epoch))

    shard.prepares(1, lambda epoch, then: slow.append((epoch, then)))
    shard.members[1].want("a test")
    shard.settle()
    shard.append(CONTROL, Claim(*PLACE, 3, "faster"))
    shard.fence(3, "faster")
    ((epoch, then),) = slow
    take_over(epoch)
    then()
    assert taken == [transactional_id("p.learn.state", 0, 1)]
    assert not shard.doers[1].appended
    assert len({transactional_id("p.learn.state", 0, epoch) for epoch in (1, 2, 3)}) == 3


def test_a_claimant_takes_over_from_whoever_has_reigned_meanwhile(shard):
    shard.begun()
    slow = []
    shard.prepares(1, lambda epoch, then: slow.append((epoch, then)))
    shard.append(CONTROL, Claim(*PLACE, 2, "another"))
    shard.members[1].want("a test")  # claims epoch 3
    shard.settle()
    shard.fence(2, "another")
    (epoch, then) = slow.pop()
    assert epoch == 1
    then()
    assert not shard.doers[1].appended
    (epoch, then) = slow.pop()
    assert epoch == 2
    then()
    assert [type(record) for record in shard.doers[1].appended] == [Fence]


def test_a_base_below_a_doubtful_manifest_is_not_taken(shard):
    """Rule 16: it may be another spec's, and something may have been released by it."""
    shard.begun()
    shard.complete(1)
    shard.complete(2, Mark("away", 0, Version(1, 1)))
    assert not shard.crashes
    shard.members[1].want("a test")
    shard.settle()
    (error,) = shard.crashes
    assert isinstance(error, CheckpointError)
    assert "learn/0 cannot get a primary that starts from e1.v1" in str(error)
    assert "export e1.v1 and import it again" in str(error)
    assert not shard.doers[1].done


# Stand-down ---------------------------------------------------------------------------------------------------------


def test_a_newer_fence_ends_a_reign(shard):
    shard.begun()
    shard.fence(2, "another")
    assert shard.doers[0].done[-1] == "stand down"
    assert shard.active[0] == [True, False]
    assert not shard.members[0].may_emit()


def test_a_yield_has_the_backup_take_over_from_the_newest_version(shard):
    shard.begun()
    shard.complete(3)
    assert shard.members[0].hand_over("it stops")
    shard.settle()
    assert [member.core.role for member in shard.members] == [Role.BACKUP, Role.PRIMARY]
    assert shard.doers[1].done == [("load", 2, Version(1, 3))]
    assert shard.doers[0].done[-1] == "stand down"


def test_a_yield_of_an_older_epoch_changes_nothing(shard):
    shard.begun()
    shard.append(CONTROL, Yield(*PLACE, 7, "operator", 0, ""))
    assert not any(doer.appended for doer in shard.doers)


def test_nobody_yields_where_nobody_is_heard(shard):
    shard.begun()
    shard.clock.advance(1.1)
    assert not shard.members[0].hand_over("it stops")
    assert not shard.doers[0].appended


def test_a_reign_that_rests_on_something_dead_goes_to_the_backup(shard):
    shard.begun()
    shard.members[0].give_up("its versions are dead")
    shard.settle()
    assert [member.core.role for member in shard.members] == [Role.BACKUP, Role.PRIMARY]
    shard.clock.advance(2.5)
    assert not shard.doers[0].appended


def test_without_a_backup_it_begins_anew_itself(shard):
    shard.begun()
    shard.clock.advance(1.1)  # nobody is heard
    shard.members[0].give_up("its versions are dead")
    shard.settle()
    assert shard.doers[0].turns == [("load", 1, INITIAL), "stand down", ("load", 2, INITIAL)]


def test_where_no_backup_comes_it_begins_anew_after_two_leases(shard):
    shard.begun()
    shard.members[0].give_up("its versions are dead")
    shard.doers[0].appended.clear()  # the backup does not read the yield
    shard.clock.advance(2.01)
    shard.settle()
    assert shard.doers[0].turns == [("load", 1, INITIAL), "stand down", ("load", 2, INITIAL)]


def test_a_member_that_has_given_up_and_is_stopped_asks_once(shard):
    """It appended its yield once more, which no appender does: the process ended with an error in its drain."""
    shard.begun()
    shard.members[0].give_up("its versions are dead")
    assert shard.members[0].hand_over("it stops")
    assert [type(record) for record in shard.doers[0].appended] == [Yield]
    shard.settle()
    assert shard.members[1].core.role is Role.PRIMARY


# Beats and leases ---------------------------------------------------------------------------------------------------


def test_a_silent_winner_is_followed_only_while_the_own_beats_come_back(shard):
    shard.begun()
    shard.clock.advance(5.0)  # a broker that stalls tells nothing of anybody
    assert not shard.doers[1].appended
    for _ in range(12):
        shard.beat(1)
    assert [type(record) for record in shard.doers[1].appended] == [Claim]


def test_a_report_counts_at_once(shard):
    shard.begun()
    shard.members[1].reported(Report("learn", 1, (shard.names[0],), 0, ""))
    assert not shard.doers[1].appended
    shard.members[1].reported(Report("learn", 0, (shard.names[0],), 0, ""))
    assert [type(record) for record in shard.doers[1].appended] == [Claim]


def test_two_that_live_and_were_reported_do_not_take_over_from_each_other_for_ever(shard):
    shard.begun()
    for member in shard.members:
        member.reported(Report("learn", 0, tuple(shard.names), 0, ""))
    for _ in range(50):
        for doer in [doer for doer in shard.doers if doer.appended]:
            record = doer.appended.pop(0)
            shard.append(CONTROL if isinstance(record, (Claim, Yield)) else PLACE, record)
    assert not any(doer.appended for doer in shard.doers)


def test_a_lease_that_is_not_renewed_ends_before_the_backup_may_begin(shard):
    shard.begun()
    assert shard.members[0].may_emit()
    shard.clock.advance(0.85)
    assert not shard.members[0].may_emit()
    assert shard.members[0].core.role is Role.PRIMARY
    shard.beat(0, 1)  # its beats come back, and the log has no newer reign
    assert shard.doers[0].done[-1] == "emit again"
    assert shard.members[0].may_emit()


def test_a_lease_that_has_ended_is_not_taken_up_again_behind_a_newer_fence(shard):
    shard.begun()
    shard.clock.advance(0.85)
    shard.doers[0].done.clear()
    shard.fence(2, "another")
    shard.beat(0)
    assert not shard.members[0].may_emit()
    assert shard.doers[0].done == ["stand down"]


# Failures -----------------------------------------------------------------------------------------------------------


def test_an_append_that_is_refused_reaches_who_has_read_the_record(shard):
    shard.doers[0].down = CheckpointError("appended before")
    with pytest.raises(CheckpointError, match="appended before"):
        shard.members[0].begin()


def test_a_member_without_beats_ends(shard):
    shard.members[0].failed(BrokerError("away"))
    assert [str(error) for error in shard.crashes] == ["away"]
