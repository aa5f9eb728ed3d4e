"""The gate's outcomes that rest on states which are not durable: held, discarded, merged anew, released."""

import pytest

from spillway.lineage.marks import Mark, Version
from spillway.lineage.message import DROPPED, FAILED, PREDICTION, Outcome
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


@pytest.mark.parametrize(("kind", "reason"), [(PREDICTION, ""), (DROPPED, "expired"), (FAILED, "model-raised")])
def test_every_outcome_is_held_until_it_is_durable(kind, reason):
    core, known = gate()
    lost = () if kind == PREDICTION else ("c",)
    core.deliver(NOW, report("q", 0, "c", OLD, kind=kind, reason=reason, lost=lost))
    assert core.collect(NOW) == []
    assert (core.pending, core.held, core.commits()) == (1, 1, {})
    known.alive = {OLD}
    core.durability_changed(NOW)
    (release,) = core.collect(NOW)
    assert (release.outcome.kind, core.held, core.commits()[0][0]) == (kind, 0, 1)


def test_a_dead_outcome_is_discarded_and_the_live_one_taken_that_came_by_another_way():
    core, known = gate()
    core.deliver(NOW, report("q", 0, "c", OLD))
    core.deliver(NOW, report("q", 1, "a", NEW, kind=DROPPED, lost=("c",), reason="expired"))
    known.gone = {OLD}
    core.durability_changed(NOW)
    assert core.collect(NOW) == []
    known.alive = {NEW}
    core.durability_changed(NOW)
    (release,) = core.collect(NOW)
    assert release.outcome.reason == "expired"
    assert core.commits()[0][0] == 2
    core.deliver(NOW, report("q", 2, "c", NEW, sequence=5))
    assert core.collect(NOW) == []
    assert (core.stats.dead, core.stats.duplicates) == (1, 1)


def test_another_report_is_a_repetition_once_the_first_is_durable():
    core, known = gate()
    core.deliver(NOW, report("q", 0, "c", OLD))
    core.deliver(NOW, report("q", 1, "a", NEW, kind=DROPPED, lost=("c",), reason="expired"))
    known.alive = {OLD}
    core.durability_changed(NOW)
    assert core.commits() == {}  # neither is done before the outcome leaves, and the other may still die
    (release,) = core.collect(NOW)
    assert release.outcome.kind == PREDICTION
    known.gone = {NEW}
    core.durability_changed(NOW)
    assert core.commits()[0][0] == 2


def test_a_merged_outcome_with_a_dead_part_is_merged_anew():
    core, known = gate("sinks-all")
    core.deliver(NOW, report("q", 0, "d", OTHER))
    core.deliver(NOW, report("q", 1, "b", OLD))
    assert core.held == 1
    known.gone = {OLD}
    core.durability_changed(NOW)
    assert (core.held, core.waiting) == (0, 1)
    core.deliver(NOW, report("q", 2, "b", NEW, sequence=1))
    known.alive = {OTHER, NEW}
    core.durability_changed(NOW)
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
    known.alive = {Mark("s", 0, Version(1, 1))}
    core.durability_changed(NOW)
    assert len(core.collect(NOW)) == 4
    assert known.asked <= 450


@pytest.mark.parametrize("held", [290.0, 301.0, 3_000.0])
def test_an_outcome_that_was_held_for_long_is_the_only_one(held):
    """An earlier stage that restarts after the release drops the query, which is late by then."""
    core, known = gate()
    core.deliver(NOW, report("q", 0, "c", OLD))
    core.deliver(NOW + held, report("r", 1, "c", OLD, appended=NOW + held))
    known.alive = {OLD}
    core.durability_changed(NOW + held)
    for number, release in enumerate(core.collect(NOW + held)):
        core.written(0, number, release.request_id, release.source.sent, NOW + held)
    core.committed(0, core.commits()[0][0])
    core.deliver(NOW + held, report("q", 2, "a", kind=DROPPED, lost=("c",), reason="expired", appended=NOW + held))
    assert core.collect(NOW + held) == []
    assert core.stats.duplicates == 1


def test_a_partition_takes_what_is_held_along():
    core, known = gate()
    core.deliver(NOW, report("q", 0, "c", OLD))
    core.revoke(0)
    known.alive = {OLD}
    core.durability_changed(NOW)
    assert (core.pending, core.collect(NOW)) == (0, [])
