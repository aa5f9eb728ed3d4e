"""A bound on a wait counts the seconds in which the machine could work."""

from typing import NamedTuple

import pytest

from tests.waiting import Bound, GivenTime, until


class Times(NamedTuple):
    user: float
    idle: float
    iowait: float
    steal: float
    guest: float


class Machine:
    """One processor, whose host takes a share of what is wanted of it."""

    def __init__(self):
        self.now, self.times = 0.0, Times(0.0, 0.0, 0.0, 0.0, 0.0)

    def go_on(self, seconds, *, busy=1.0, stolen=0.0):
        wanted = busy * seconds
        self.now += seconds
        user, idle, iowait, steal, guest = self.times
        self.times = Times(
            user + wanted * (1 - stolen), idle + seconds - wanted, iowait, steal + wanted * stolen, guest
        )

    def bound(self, seconds):
        return Bound(seconds / 4, GivenTime(lambda: self.now, lambda: self.times))


@pytest.mark.parametrize("busy", [0.0, 0.3, 1.0])
def test_where_nothing_is_stolen_it_is_the_clock(busy):
    machine = Machine()
    bound = machine.bound(60)
    machine.go_on(59.5, busy=busy)
    assert not bound.over
    machine.go_on(1, busy=busy)
    assert bound.over


@pytest.mark.parametrize("busy", [0.2, 1.0])
def test_what_the_host_takes_of_what_is_wanted_does_not_count(busy):
    machine = Machine()
    bound = machine.bound(60)
    machine.go_on(300, busy=busy, stolen=0.9)  # 30 s
    assert not bound.over
    machine.go_on(29, busy=busy)
    assert not bound.over
    machine.go_on(1.1, busy=busy)
    assert bound.over


def test_a_wait_that_looks_often_counts_the_same():
    machine = Machine()
    bound = machine.bound(10)
    for _ in range(990):
        machine.go_on(0.02, stolen=0.5)
        assert not bound.over
    for _ in range(61):
        machine.go_on(0.02, stolen=0.5)
        over = bound.over
    assert over


def test_until_gives_what_the_condition_gave_or_says_what_did_not_happen():
    answers = iter([None, [], "found"])
    assert until(lambda: next(answers), 60) == "found"
    with pytest.raises(AssertionError, match=r"three to come: not within 4 x 0 s"):
        until(lambda: False, 0, lambda: "three to come")
