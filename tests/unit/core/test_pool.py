"""The pool of one lane: what it starts, drains and replaces."""

import pytest

from agents.core.pool import Drain, Pool, Start
from agents.core.workers import Phase


def started(pool: Pool, now: float = 0.0) -> list[int]:
    return [action.worker for action in pool.take(now) if isinstance(action, Start)]


def test_it_starts_as_many_as_it_is_told_and_no_more():
    pool = Pool(2)
    assert pool.take(0.0) == [Start(0), Start(1)]
    assert pool.take(0.0) == []
    assert pool.phases() == {0: Phase.LOADING, 1: Phase.LOADING}


def test_what_is_over_drains_those_that_load_first_and_then_the_newest():
    pool = Pool(3)
    started(pool)
    for worker in (0, 2):
        assert pool.ready(1.0, worker)
    pool.began(1.0, 2)
    pool.resize(1)
    assert pool.take(2.0) == [Drain(1), Drain(2)]
    assert pool.phases() == {0: Phase.READY, 2: Phase.DRAINING}
    assert pool.completed(3.0, 2)
    assert pool.phases() == {0: Phase.READY}
    assert not pool.ready(3.0, 1)  # it said Hello after it was given up


def test_a_lost_worker_is_replaced_at_once_and_under_a_new_number():
    pool = Pool(1)
    started(pool)
    pool.ready(0.0, 0)
    pool.began(20.0, 0)
    pool.lost(20.0, 0)
    assert started(pool, 20.0) == [1]
    assert pool.restarts == 1


def test_workers_that_are_lost_one_after_the_other_are_waited_with_longer_each_time():
    pool, now, waits = Pool(1), 0.0, []
    for _ in range(9):
        (worker,) = started(pool, now)
        pool.lost(now, worker)
        wake = pool.next_wake(now)
        waits.append(0.0 if wake is None else wake - now)
        assert not wake or pool.take(wake - 0.001) == []
        now = wake or now
    assert waits == [0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_one_that_served_for_a_while_ends_the_waiting():
    pool = Pool(1)
    for now in (0.0, 0.0, 1.0):
        (worker,) = started(pool, now)
        pool.lost(now, worker)
    (worker,) = started(pool, 5.0)
    pool.ready(5.0, worker)
    pool.lost(60.0, worker)
    assert pool.next_wake(60.0) is None
    assert len(started(pool, 60.0)) == 1


def test_a_worker_that_asks_to_drain_is_let_go_and_another_takes_its_place():
    pool = Pool(1)
    started(pool)
    pool.ready(0.0, 0)
    pool.began(0.0, 0)
    assert pool.asked_to_drain(1.0, 0) == [Drain(0)]
    assert started(pool, 1.0) == [1]
    assert pool.asked_to_drain(1.0, 0) == []
    assert pool.completed(2.0, 0)


def test_what_cannot_happen_is_refused():
    pool = Pool(1)
    started(pool)
    with pytest.raises(ValueError, match="worker 0 is loading: 'batch' cannot happen"):
        pool.began(0.0, 0)
    with pytest.raises(ValueError, match="cannot have -1"):
        pool.resize(-1)
