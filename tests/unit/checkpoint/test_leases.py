"""A primary's right to emit (rule 13)."""

import pytest

from spillway.checkpoint.claims import Claims
from spillway.checkpoint.leases import Emission, Lease, Order
from spillway.checkpoint.logs import Logs
from spillway.checkpoint.promotion import Load, Member
from spillway.checkpoint.roles import Emit, ReadToEnd, Roles
from spillway.checkpoint.versions import INITIAL

LEASE = Lease()  # 1 s, less .2 s of margin; beats every .1 s


def holding(now=100.0):
    return Emission(LEASE, 3, sent=now)


def test_a_beat_that_came_back_prolongs_the_right_from_when_it_was_sent():
    right = holding()
    assert right.beat_returned(100.7, 100.1) == []
    assert right.may_emit(100.89)
    assert not right.may_emit(100.9)
    assert right.next_wake() == pytest.approx(100.9)


def test_a_beat_that_never_came_back_prolongs_nothing():
    right = holding()
    assert not right.may_emit(100.8)
    assert right.advance(100.8) == [Order.STOP]
    assert right.advance(100.9) == []


def test_after_a_lapse_the_log_is_read_before_it_goes_on():
    """A broker that was away for some seconds costs no failover."""
    right = holding()
    assert right.advance(105.0) == [Order.STOP]
    assert right.beat_returned(105.1, 105.0) == [Order.CHECK]
    assert not right.may_emit(105.1)
    assert right.checked(105.2, right.checks) == [Order.GO_ON]
    assert right.may_emit(105.3)


def test_a_check_that_took_too_long_is_made_again():
    right = holding()
    right.advance(105.0)
    right.beat_returned(105.1, 105.0)
    first = right.checks
    assert right.checked(106.0, first) == [Order.STOP]
    assert right.beat_returned(106.1, 106.0) == [Order.CHECK]
    assert right.checked(106.2, first) == []
    assert right.checked(106.2, right.checks) == [Order.GO_ON]


@pytest.mark.parametrize("state", ["held", "lapsed", "checking"])
def test_a_newer_fence_ends_it_for_good(state):
    right = holding()
    if state != "held":
        right.advance(105.0)
    if state == "checking":
        right.beat_returned(105.1, 105.0)
    assert right.right.value == state
    assert right.fenced(3) == []
    assert right.fenced(4) == [Order.STAND_DOWN]
    assert right.beat_returned(105.2, 105.1) == []
    assert right.checked(105.2, right.checks) == []
    assert not right.may_emit(105.2)
    assert right.fenced(5) == []
    assert right.next_wake() is None


@pytest.mark.parametrize("bad", [{"seconds": 0.9}, {"margin": 0.6}, {"margin": 0.0}, {"beat": 0.3}, {"beat": 0.0}])
def test_a_lease_that_ordinary_gaps_would_end_is_refused(bad):
    with pytest.raises(ValueError, match="the lease must be 1"):
        Lease(**bad)


# A primary's right to emit where its driver is too busy to follow its own beats, as in a backlog.

PLACE = ("learn", 0)


def member():
    return Roles(Member(PLACE, "p.learn.0.0@1", Claims(), Logs([PLACE])), 0, Lease(1.0))


def test_foreign_and_repeated_beats_change_nothing_and_those_under_way_are_bounded():
    roles = member()
    for sequence in range(10_000):
        roles.beat_sent(99.0, sequence)
    assert len(roles._beats) <= 256
    roles.beat_sent(100.0, 10_000)
    roles.beat_heard(100.1, roles.name, 10_000)
    roles._act(100.1, Load(1, INITIAL))
    for sequence in (10_000, 77):
        roles.beat_heard(100.7, roles.name, sequence)
    assert not roles.may_emit(100.9)


def test_what_was_held_back_is_sent_when_beats_that_came_in_time_are_told_late():
    """Held back by the time alone, it would wait for ever: no message overtakes it, and the right seems never lost."""
    roles = member()
    roles.beat_sent(100.0, 1)
    roles.beat_heard(100.05, roles.name, 1)
    roles._act(100.06, Load(1, INITIAL))
    assert roles.may_emit(100.1)
    assert not roles.may_emit(101.0)  # the driver was busy: neither timers nor beats were served
    again = []
    for sequence in range(2, 12):  # sent and read by other threads, in time
        roles.beat_sent(100 + (sequence - 1) / 10, sequence)
        roles.beat_heard(100.05 + (sequence - 1) / 10, roles.name, sequence)
        for step in roles.take_actions():
            if isinstance(step, ReadToEnd):
                roles.checked(100.05 + (sequence - 1) / 10, step.epoch, step.check)
            elif isinstance(step, Emit):
                again.append(step.again)
    assert again == [False, True]
    assert roles.may_emit(101.06)
