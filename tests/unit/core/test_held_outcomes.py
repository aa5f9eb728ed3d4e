"""The gate's outcomes that rest on states which are not durable: held, discarded, merged anew, released."""

from spillway.lineage.marks import Mark, Version
from spillway.lineage.message import DROPPED, PREDICTION, Outcome
from tests.unit.core import test_gate as gates
from tests.unit.core.builders import NEW, NOW, OLD, OTHER, Known, marked
from tests.unit.core.test_gate import Report


def report(request_id, offset, sender, *marks, kind=PREDICTION, lost=(), reason="", **more):
    return marked(request_id, offset, sender, *marks, lost=lost, payload=Report(Outcome(kind, reason=reason)), **more)


def gate(shape="chain"):
    known = Known()
    core = gates.gate(shape, durability=known)
    core.committed(0, 0)
    return core, known


def test_another_report_is_a_repetition_once_the_first_is_durable():
    core, known = gate()
    core.deliver(NOW, report("q", 0, "c", OLD))
    core.deliver(NOW, report("q", 1, "a", NEW, kind=DROPPED, lost=("c",), reason="expired"))
    known.tell(core, alive={OLD})
    assert core.commits() == {}  # neither is done before the outcome leaves, and the other may still die
    (release,) = core.collect(NOW)
    assert release.outcome.kind == PREDICTION
    known.tell(core, gone={NEW})
    assert core.commits()[0][0] == 2


def test_a_copy_with_other_marks_is_a_repetition_once_the_first_is_durable():
    core, known = gate()
    core.deliver(NOW, report("q", 0, "c", OLD))
    core.deliver(NOW, report("q", 1, "c", NEW, sequence=0))
    known.tell(core, alive={OLD})
    assert [release.request_id for release in core.collect(NOW)] == ["q"]
    assert (core.stats.duplicates, core.commits()[0][0]) == (1, 2)


def test_a_merged_outcome_with_a_dead_part_is_merged_anew():
    core, known = gate("sinks-all")
    core.deliver(NOW, report("q", 0, "d", OTHER))
    core.deliver(NOW, report("q", 1, "b", OLD))
    assert core.held == 1
    known.tell(core, gone={OLD})
    assert (core.held, core.waiting) == (0, 1)
    core.deliver(NOW, report("q", 2, "b", NEW, sequence=1))
    known.tell(core, alive={OTHER, NEW})
    (release,) = core.collect(NOW)
    assert {part.offset for part in release.parts} == {0, 2}
    assert core.commits()[0][0] == 3


def test_what_is_held_costs_nothing_while_nothing_changes():
    core, known = gate()
    for offset in range(20_000):
        core.deliver(NOW, report(f"q{offset}", offset, "c", Mark("s", 0, Version(1, 1 + offset // 4))))
    assert not core.room
    known.asked = 0
    for _ in range(100):
        core.durability_changed(NOW)
        assert core.collect(NOW) == []
    assert known.asked <= 400
    known.tell(core, alive={Mark("s", 0, Version(1, 1))})
    assert len(core.collect(NOW)) == 4
    assert known.asked <= 450


def test_a_partition_takes_what_is_held_along():
    core, known = gate()
    core.deliver(NOW, report("q", 0, "c", OLD))
    core.revoke(0)
    known.tell(core, alive={OLD})
    assert (core.pending, core.collect(NOW)) == (0, [])


def test_the_bytes_that_are_held_are_bounded_too():
    core, known = gate()
    for offset in range(32):
        assert core.room
        core.deliver(NOW, report(f"q{offset}", offset, "c", OLD, size=1 << 20))
    assert not core.room
    known.tell(core, gone={OLD})
    assert core.room
