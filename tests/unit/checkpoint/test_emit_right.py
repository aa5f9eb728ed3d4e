"""A primary's right to emit where its driver is too busy to follow its own beats, as in a backlog."""

from checkpoint.claims import Claims
from checkpoint.leases import Lease
from checkpoint.logs import Logs
from checkpoint.promotion import Load, Member
from checkpoint.roles import Emit, ReadToEnd, Roles
from checkpoint.versions import INITIAL

PLACE = ("learn", 0)


def test_what_was_held_back_is_sent_when_beats_that_came_in_time_are_told_late():
    """Held back by the time alone, it would wait for ever: no message overtakes it, and the right seems never lost."""
    roles = Roles(Member(PLACE, "p.learn.0.0@1", Claims(), Logs([PLACE])), 0, Lease(1.0))
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
