"""Queries that wait before they enter the queue: they take no room in it, wait no longer than they may, and leave."""

import pytest

from agents.core.holding import MOST_SECONDS
from tests.unit.core.builders import NOW, delivery, finish, stage_core


@pytest.fixture
def behind():
    """Ids of queries that have to wait."""
    return {"q0", "q1"}


@pytest.fixture
def core(behind):
    core = stage_core("chain", "b", queue_limit=1, awaits=lambda work: work.request_id in behind)
    for offset in range(3):
        core.deliver(NOW, delivery(f"q{offset}", offset, "a", deadline=NOW + 10.0 if offset else NOW + 1.0))
    return core


def ran(core, now=NOW):
    return [emit.request_id for emit in finish(core, "c", now=now)]


def test_what_waits_takes_no_room_and_enters_when_it_may(core, behind):
    assert core.depth == 0
    assert core.room
    assert core.unsettled == 3
    assert ran(core) == ["q2"]
    assert core.next_wake(NOW) == pytest.approx(NOW, abs=0.1)
    behind.discard("q1")
    core.advance(NOW + 0.1)
    assert ran(core, NOW + 0.1) == ["q1"]
    assert ran(core, NOW + 0.1) == []


def test_it_enters_after_half_of_what_its_deadline_leaves_or_a_second(core):
    assert ran(core) == ["q2"]
    core.advance(NOW + 0.49)
    assert ran(core) == []
    core.advance(NOW + 0.51)
    assert ran(core, NOW + 0.51) == ["q0"]
    core.advance(NOW + MOST_SECONDS)
    assert ran(core, NOW + MOST_SECONDS) == ["q1"]
    assert core.next_wake(NOW + 2) is None


def test_what_waits_leaves_with_its_partition(core):
    (emit,) = finish(core, "c")
    core.acked(emit)
    core.revoke(NOW, 0)
    assert core.unsettled == 0
    core.advance(NOW + 2)
    assert ran(core, NOW + 2) == []
