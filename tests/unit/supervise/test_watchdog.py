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
        wedged = dog.observe(now, seen, running or {0: -100.0})
        if wedged:
            verdicts.append((now, set(wedged)))
    return verdicts


def test_progress_is_fine_however_long_the_lag():
    assert watch([sight((n, 1000, 0)) for n in range(50)]) == []


def test_no_lag_is_fine_however_long_the_silence():
    assert watch([sight((7, 7, 0))] * 50) == []


def test_lag_without_progress_for_the_stall_time_is_wedged():
    assert watch([sight((7, 9, 0))] * 7) == [(30.0, {0})]


def test_records_that_arrive_after_a_long_silence_start_the_clock():
    assert watch([sight((7, 7, 0))] * 20 + [sight((7, 8, 0))] * 6) == []


def test_one_stuck_partition_is_enough_and_its_owner_is_blamed():
    sights = [sight((n, 1000, 0), (5, 6, 1), members=(0, 1)) for n in range(7)]
    assert watch(sights, running={0: -100.0, 1: -100.0}) == [(30.0, {1})]


def test_a_restarted_replica_gets_the_stall_time_again():
    assert watch([sight((7, 9, 0))] * 8, running={0: 20.0}) == []


def test_one_that_is_not_running_is_not_blamed():
    assert watch([sight((7, 9, 0))] * 8, running={1: -100.0}) == [(30.0, {1})]  # 1 is absent from the group
    assert watch([sight((7, 9, 0), members=(0, 1))] * 8, running={1: -100.0}) == []


def test_one_put_out_of_its_group_is_wedged_even_without_lag():
    sights = [sight((7, 7, 0), members=(0,))] * 7
    assert watch(sights, running={0: -100.0, 1: -100.0}) == [(30.0, {1})]


def test_a_gap_in_sight_starts_the_clocks_anew():
    dog = Watchdog(30.0, longest_gap=15.0)
    stuck = sight((7, 9, 0))
    assert not dog.observe(0.0, stuck, {0: -100.0})
    assert not dog.observe(100.0, stuck, {0: -100.0})
    assert not dog.observe(110.0, stuck, {0: -100.0})
    assert not dog.observe(120.0, stuck, {0: -100.0})
    assert dog.observe(130.0, stuck, {0: -100.0}) == {0}


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
    stuck = sight((7, 9, 0))
    for now in (0.0, 20.0, 40.0, 60.0):
        assert not dog.observe(now, stuck, {0: -100.0}, excused=True)
    assert not dog.observe(80.0, stuck, {0: -100.0})
    assert dog.observe(90.0, stuck, {0: -100.0}) == {0}


def test_bytes_that_move_excuse_while_no_version_completes():
    dog, stuck = Watchdog(30.0, longest_gap=15.0), sight((7, 9, 0), (5, 9, 0))
    assert not any(dog.observe(n * 10.0, stuck, {0: -100.0}, moving=True) for n in range(20))


def test_a_version_that_takes_longer_than_the_stall_time_is_waited_for():
    dog = Watchdog(30.0, longest_gap=15.0)
    for n in range(100):
        complete = n // 10
        assert not dog.observe(n * 10.0, sight((complete, 99, 0), (complete, 99, 0)), {0: -100.0}, moving=True)


def test_bytes_that_move_excuse_no_partition_that_versions_complete_without():
    dog = Watchdog(30.0, longest_gap=15.0)
    verdicts = [dog.observe(n * 10.0, sight((n, 99, 0), (5, 9, 0)), {0: -100.0}, moving=True) for n in range(8)]
    assert {0} in verdicts[5:]
    assert not any(verdicts[:5])


def test_a_backup_keeps_up_as_long_as_nobody_of_its_shard_is_further():
    behind, ahead = sight((7, 9, 0), (4, 4, 0)), sight((8, 9, 1), (4, 4, 1))
    assert keeps_up(behind, [behind, sight((7, 9, 1), (3, 4, 1))])
    assert not keeps_up(behind, [behind, ahead])
    assert keeps_up(ahead, [behind, ahead])


def test_one_that_waits_for_anothers_versions_is_not_wedged_and_has_the_stall_time_anew():
    dog, stuck = Watchdog(30.0, longest_gap=15.0), sight((7, 9, 0))
    for n in range(20):
        assert not dog.observe(n * 10.0, stuck, {0: -100.0}, waits={0})
    for n in range(20, 22):
        assert not dog.observe(n * 10.0, stuck, {0: -100.0})
    assert dog.observe(220.0, stuck, {0: -100.0}) == {0}


def test_waiting_on_one_partition_excuses_no_other():
    sights = [sight((7, 9, 0), (5, 6, 1), members=(0, 1))] * 7
    dog, verdicts = Watchdog(30.0, longest_gap=15.0), []
    for n, seen in enumerate(sights):
        verdicts.append(dog.observe(n * 5.0, seen, {0: -100.0, 1: -100.0}, waits={0}))
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
