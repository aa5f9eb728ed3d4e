"""The watchdog's judgement, with the clock and the broker's view in the test's hands."""

import math

import pytest

from spillway.agents.supervise.watchdog import GroupSight, Movement, PartitionSight, Watchdog, blame, keeps_up


def sight(*partitions, members=(0,)):
    return GroupSight({n: PartitionSight(*p) for n, p in enumerate(partitions)}, frozenset(members))


def watch(sights, running=None, stall=30.0, every=5.0):
    """Feed the sights one after another; returns (time, replicas) of each verdict that names somebody."""
    dog = Watchdog(stall, longest_gap=every * 3)
    verdicts = []
    for n, seen in enumerate(sights):
        now = n * every
        wedged = dog.observe(now, seen, running or ONE)
        if wedged:
            verdicts.append((now, set(wedged)))
    return verdicts


@pytest.fixture
def dog():
    return Watchdog(30.0, longest_gap=15.0)


STUCK = sight((7, 9, 0))
ONE = {0: -100.0}
BOTH = {0: -100.0, 1: -100.0}


@pytest.mark.parametrize(
    ("sights", "running", "verdicts"),
    [
        ([sight((n, 1000, 0)) for n in range(50)], None, []),  # progress is fine however long the lag
        ([sight((7, 7, 0))] * 50, None, []),  # no lag is fine however long the silence
        ([STUCK] * 7, None, [(30.0, {0})]),
        ([sight((7, 7, 0))] * 20 + [sight((7, 8, 0))] * 6, None, []),  # what arrives after a silence starts the clock
        ([sight((n, 1000, 0), (5, 6, 1), members=(0, 1)) for n in range(7)], BOTH, [(30.0, {1})]),  # its owner alone
        ([STUCK] * 8, {0: 20.0}, []),  # restarted, it gets the stall time again
        ([STUCK] * 8, {1: -100.0}, [(30.0, {1})]),  # 1 is absent from the group, and 0 does not run
        ([sight((7, 9, 0), members=(0, 1))] * 8, {1: -100.0}, []),
        ([sight((7, 7, 0), members=(0,))] * 7, BOTH, [(30.0, {1})]),  # put out of its group, even without lag
    ],
)
def test_who_makes_no_progress_while_records_wait_is_wedged(sights, running, verdicts):
    assert watch(sights, running) == verdicts


def test_a_gap_in_sight_starts_the_clocks_anew(dog):
    assert not any(dog.observe(now, STUCK, ONE) for now in (0.0, 100.0, 110.0, 120.0))
    assert dog.observe(130.0, STUCK, ONE) == {0}


@pytest.mark.parametrize(
    ("owner", "running", "members", "blamed"),
    [
        (0, {0, 1}, {0, 1}, {0}),
        (0, {1}, {0, 1}, set()),
        (None, {0, 1}, {1}, {0}),
        (None, {0, 1}, {0, 1}, {0, 1}),
        (None, {0, 1}, set(), {0, 1}),
    ],
)
def test_blame(owner, running, members, blamed):
    assert blame(owner, frozenset(running), frozenset(members)) == blamed


def test_lag_counts_what_is_not_committed():
    assert sight((7, 9, 0), (9, 9, 0), (12, 9, 0)).lag == 2


def test_who_is_excused_has_the_whole_time_anew_afterwards():
    dog = Watchdog(30.0, longest_gap=100.0)
    assert not any(dog.observe(now, STUCK, ONE, excused=True) for now in (0.0, 20.0, 40.0, 60.0))
    assert not dog.observe(80.0, STUCK, ONE)
    assert dog.observe(90.0, STUCK, ONE) == {0}


def test_bytes_that_move_excuse_while_no_version_completes(dog):
    stuck = sight((7, 9, 0), (5, 9, 0))
    assert not any(dog.observe(n * 10.0, stuck, ONE, moving=True) for n in range(20))


def test_a_version_that_takes_longer_than_the_stall_time_is_waited_for(dog):
    for n in range(100):
        complete = n // 10
        assert not dog.observe(n * 10.0, sight((complete, 99, 0), (complete, 99, 0)), ONE, moving=True)


def test_bytes_that_move_excuse_no_partition_that_versions_complete_without(dog):
    verdicts = [dog.observe(n * 10.0, sight((n, 99, 0), (5, 9, 0)), ONE, moving=True) for n in range(8)]
    assert {0} in verdicts[5:]
    assert not any(verdicts[:5])


def test_a_backup_keeps_up_as_long_as_nobody_of_its_shard_is_further():
    behind, ahead = sight((7, 9, 0), (4, 4, 0)), sight((8, 9, 1), (4, 4, 1))
    assert keeps_up(behind, [behind, sight((7, 9, 1), (3, 4, 1))])
    assert not keeps_up(behind, [behind, ahead])
    assert keeps_up(ahead, [behind, ahead])


def test_waiting_on_one_partition_excuses_no_other(dog):
    seen = sight((7, 9, 0), (5, 6, 1), members=(0, 1))
    verdicts = [dog.observe(n * 5.0, seen, BOTH, waits={0}) for n in range(7)]
    assert verdicts[-1] == {1}


def test_movement_is_a_change_of_what_is_told():
    movement = Movement()
    movement.note(1.0, {"a": 0, "b": 10})
    assert (movement.last("a"), movement.last("b"), movement.last("c")) == (-math.inf, 1.0, -math.inf)
    movement.note(2.0, {"a": 5, "b": 10})
    assert (movement.last("a"), movement.last("b")) == (2.0, 1.0)
    movement.note(3.0, {"a": 5})
    movement.note(4.0, {"a": 2, "b": 0})  # both were started again
    assert (movement.last("a"), movement.last("b")) == (4.0, -math.inf)
