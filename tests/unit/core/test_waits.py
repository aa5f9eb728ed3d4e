"""Which partitions a stage and the gate say to stand still for versions of other stages."""

from spillway.agents.core.gate import HELD_LIMIT
from tests.unit.core import test_held_outcomes as held_outcomes
from tests.unit.core.builders import NEW, NOW, OLD, OTHER, delivery, finish, marked, stage_core
from tests.unit.core.test_held_outcomes import report
from tests.unit.core.test_speculation import behind


def gate():
    core, known = held_outcomes.gate()
    core.assign(1, 0)
    return core, known


def looked_twice(core):
    """What a core says that has stood still between two looks."""
    core.waits()
    return core.waits()


def test_one_whose_oldest_record_rests_on_nothing_does_not_wait():
    core, _ = behind()
    core.deliver(NOW, delivery("first", 0, "a"))  # nobody answers for it: its model hangs
    core.deliver(NOW, marked("q", 1, "a", OLD))
    assert looked_twice(core) == frozenset()


def test_a_stage_with_no_state_before_it_never_waits():
    core = stage_core("chain", "b")
    core.deliver(NOW, delivery("q", 0, "a"))
    assert looked_twice(core) == frozenset()


def test_the_durable_part_of_a_request_waits_with_the_other():
    core, known = behind("diamond", "d")
    core.deliver(NOW, marked("q", 0, "b", OTHER))
    core.deliver(NOW, marked("q", 1, "c", OLD))
    core.acked_all(finish(core, None))
    known.tell(core, alive={OTHER})
    assert looked_twice(core) == {0}


def test_a_copy_that_is_kept_waits_too():
    core, known = behind()
    core.deliver(NOW, marked("q", 0, "a", OLD))
    core.deliver(NOW, marked("q", 1, "a", NEW, sequence=0))
    known.tell(core, gone={OLD})
    assert looked_twice(core) == {0}  # the second one is the first now


def test_what_is_dead_is_not_waited_for():
    core, known = behind()
    core.deliver(NOW, marked("q", 0, "a", OLD))
    core.acked_all(finish(core, "c"))
    known.tell(core, gone={OLD})
    assert looked_twice(core) == frozenset()


def test_the_gate_waits_with_the_partition_whose_outcomes_it_holds():
    core, _ = gate()
    core.deliver(NOW, report("q", 0, "c", OLD))
    assert core.collect(NOW) == []
    assert looked_twice(core) == {0}


def test_partitions_of_which_nothing_is_taken_wait_with_those_that_fill_the_core():
    core, _ = gate()
    for offset in range(HELD_LIMIT):
        core.deliver(NOW, report(f"q{offset}", offset, "c", OLD))
    assert not core.room
    assert looked_twice(core) == {0, 1}
