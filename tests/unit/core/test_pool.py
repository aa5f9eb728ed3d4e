"""The pool of one lane: what it starts, drains and replaces."""

import pytest

from spillway.agents.core.actions import Ok
from spillway.agents.core.pool import Drain, Pool, Start
from spillway.agents.core.stage import DEATHS, UNSERVED_SECONDS
from spillway.agents.core.workers import Phase
from spillway.lineage import reasons
from tests.unit.core.builders import NOW, delivery, finish, shown, stage_core


def started(pool: Pool, now: float = 0.0) -> list[int]:
    return [action.worker for action in pool.take(now) if isinstance(action, Start)]


def test_it_starts_as_many_as_it_is_told_and_no_more():
    pool = Pool(2)
    assert list(pool.take(0.0)) == [Start(0), Start(1)]
    assert list(pool.take(0.0)) == []
    assert pool.phases() == {0: Phase.LOADING, 1: Phase.LOADING}


def test_what_is_over_drains_those_that_load_first_and_then_the_newest():
    pool = Pool(3)
    started(pool)
    for worker in (0, 2):
        assert pool.ready(1.0, worker)
    pool.began(1.0, 2)
    pool.resize(1)
    assert list(pool.take(2.0)) == [Drain(1, loading=True), Drain(2)]
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


def test_workers_that_come_by_themselves_are_counted_and_neither_started_nor_sent_away():
    pool = Pool(2, starts=False)
    assert (list(pool.take(0.0)), pool.next_wake(0.0), pool.there) == ([], None, 0)
    for worker in range(3):
        assert pool.ready(1.0, worker)
    pool.began(1.0, 0)
    assert (list(pool.take(1.0)), pool.there) == ([], 3)
    pool.lost(1.0, 0)
    assert pool.asked_to_drain(1.0, 1) == [Drain(1)]
    assert (list(pool.take(2.0)), pool.next_wake(2.0), pool.phases()) == ([], None, {2: Phase.READY})


def test_workers_that_are_lost_one_after_the_other_are_waited_with_longer_each_time():
    pool, now, waits = Pool(1), 0.0, []
    for _ in range(9):
        (worker,) = started(pool, now)
        pool.lost(now, worker)
        wake = pool.next_wake(now)
        waits.append(0.0 if wake is None else wake - now)
        assert not wake or list(pool.take(wake - 0.001)) == []
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


# What becomes of queries whose worker drains, or is lost.

ENDS = "SIGKILL"


def core_of(*names: str):
    core = stage_core("chain", "b", batch=4)
    for offset, name in enumerate(names):
        core.deliver(NOW, delivery(name, offset, "a"))
    return core


def ids(batch):
    return [request.request_id for request in batch.requests]


def test_a_query_that_ends_every_worker_costs_its_own_outcome_alone():
    core = core_of("fatal", "q1")
    core.take_runs()
    core.lose(NOW, 0, blamed=range(1), why=ENDS)
    for worker in range(1, DEATHS):
        core.attach(NOW, worker)
        (batch,) = core.take_runs()
        suspects = [request.request_id for request in batch.requests if request.suspect]
        assert suspects == ([] if worker == 1 else ["fatal"])
        place = ids(batch).index("fatal")
        core.lose(NOW, worker, blamed=range(place, place + 1), why=ENDS)
    letter, outcome = core.take_emits()
    assert (letter.kind.value, outcome.kind.value) == ("dead-letter", "outcome")
    assert outcome.loss.reason == reasons.MODEL_DIED
    assert "3 workers ended while they ran it; the last: SIGKILL" in outcome.loss.text
    core.attach(NOW, 9)
    assert shown(finish(core, "c")) == [("result", "c", "q1", ())]


def test_a_drained_worker_answers_what_it_runs_and_gets_no_more():
    core = core_of("q0", "q1")
    (batch,) = core.take_runs()
    assert not core.drain(NOW, 0)
    core.complete(NOW, batch, [Ok({"c": "out"})], 0.01)
    assert core.take_runs() == []
    assert core.depth == 1
    core.attach(NOW, 1)
    assert [ids(run) for run in core.take_runs()] == [["q1"]]


def test_an_idle_worker_drains_at_once():
    core = core_of()
    assert core.drain(NOW, 0)
    core.deliver(NOW, delivery("q0", 0, "a"))
    assert core.take_runs() == []


def test_where_no_worker_comes_a_query_fails_long_after_its_deadline():
    core = core_of("q0")
    core.take_runs()
    core.lose(NOW, 0)
    over = NOW + 1.0 + UNSERVED_SECONDS
    core.advance(over - 0.1)
    assert core.take_emits() == []
    assert core.next_wake(over) is not None
    core.advance(over + 0.1)
    assert [emit.loss.reason for emit in core.take_emits() if emit.kind.value == "outcome"] == [reasons.NO_WORKER]
    assert core.depth == 0


def test_a_revoked_partition_takes_the_queries_of_a_lost_worker_with_it():
    core = core_of("q0", "q1")
    core.take_runs()
    core.revoke(NOW, 0)
    core.lose(NOW, 0, blamed=range(1), why=ENDS)
    core.attach(NOW, 1)
    assert (core.take_runs(), core.take_emits(), core.unsettled, core.depth) == ([], [], 0, 0)
