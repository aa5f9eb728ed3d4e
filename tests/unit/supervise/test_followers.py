"""A dead primary is started again later while another member of its shard goes on; no processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.supervise.child import GATE, MEMBER, Child, ChildPlan
from agents.supervise.followers import give_way, hasten_unfollowed
from agents.supervise.lifecycle import RestartPolicy, State

POLICY = RestartPolicy(first_delay=0.2, jitter=0.0, followed_delay=1.0)


def child(stage="s", shard=0, role=MEMBER, state=State.RUNNING):
    made = Child(ChildPlan(stage, 0, role, ("true",), shard=shard), Path("none"), POLICY, 0.0)
    made.life.step(0.0, exit_code=None, ready=False)
    if state is State.RUNNING:
        made.life.step(1.0, exit_code=None, ready=True)
    return made


def die(dead, now=10.0):
    dead.life.step(now, exit_code=-9, ready=False)
    return dead


def test_the_dead_comes_back_later_while_another_member_is_ready():
    dead = die(child())
    give_way(dead, [dead, child()])
    assert dead.life.due == pytest.approx(11.0)


@pytest.mark.parametrize(
    "other", [child(stage="t"), child(shard=1), child(role=GATE), child(state=State.STARTING), die(child())]
)
def test_it_comes_back_at_once_where_nobody_of_its_shard_is_ready(other):
    dead = die(child())
    give_way(dead, [dead, other])
    assert dead.life.due == pytest.approx(10.2)


def test_it_waits_no_longer_once_its_follower_is_dead_too():
    dead, follower = die(child()), child()
    children = [dead, follower]
    give_way(dead, children)
    hasten_unfollowed(children)
    assert dead.life.due == pytest.approx(11.0)
    die(follower, 10.1)
    hasten_unfollowed(children)
    assert (dead.life.due, follower.life.due) == (pytest.approx(10.2), pytest.approx(10.3))


def test_a_longer_delay_after_many_deaths_stays():
    dead = child()
    for now in (10.0, 20.0, 30.0, 40.0):
        die(dead, now)
        if now < 40.0:
            dead.life.step(dead.life.due, exit_code=None, ready=False)
    give_way(dead, [dead, child()])
    assert dead.life.due == pytest.approx(41.6)


def test_who_lives_or_was_given_up_is_not_put_off():
    alive, given_up = child(), child()
    given_up.life.step(10.0, exit_code=2, ready=False)
    for one in (alive, given_up):
        before = one.life.due
        give_way(one, [one, child()])
        hasten_unfollowed([one])
        assert one.life.due == before
