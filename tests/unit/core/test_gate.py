"""The gate's core call by call: one outcome a query, released with its offsets, remembered across restarts."""

from dataclasses import dataclass

import pytest

from spillway.agents.core.gate import GateCore
from spillway.agents.core.joins import MIN_WAIT_SECONDS
from spillway.agents.core.outcomes import ReleasedMemory, merged
from spillway.lineage import reasons
from spillway.lineage.message import DROPPED, FAILED, PREDICTION, Outcome, StageTiming
from tests.unit.core.builders import NOW, delivery
from tests.unit.core.shapes import SHAPES


@dataclass
class Report:
    outcome: Outcome


def report(request_id, offset, sender, kind=PREDICTION, *, lost=(), reason="", outputs=None, **more):
    outcome = Outcome(kind, outputs=outputs or {}, reason=reason, stage=sender)
    return delivery(request_id, offset, sender, lost=lost, payload=Report(outcome), **more)


def gate(shape="chain", **options):
    core = GateCore(SHAPES[shape].graph(), sinks=SHAPES[shape].sinks, **options)
    core.assign(0, 0)
    return core


def turn(core, now=NOW, egress=None):
    """One transaction that stands; what it released, and what it committed."""
    releases = core.collect(now)
    commits = core.commits()
    for number, release in enumerate(releases):
        core.written(0, (egress or 0) + number, release.request_id, release.source.sent, now)
    for partition, (offset, _) in commits.items():
        core.committed(partition, offset)
    return releases, commits


def test_a_report_is_released_once_with_its_offset():
    core = gate()
    core.deliver(NOW, report("q", 0, "c", outputs={"x": 1}))
    assert core.pending == 1
    (release,), commits = turn(core, NOW + 0.25)
    assert (release.request_id, release.partition, release.outcome.outputs) == ("q", 0, {"x": 1})
    assert (release.own, release.good, release.latency) == (False, True, 0.25)
    assert commits[0][0] == 1
    core.deliver(NOW, report("q", 1, "c", sequence=0))
    core.deliver(NOW, report("q", 2, "a", DROPPED, lost=("c",), reason="expired"))  # another way, another report
    releases, commits = turn(core)
    assert releases == []
    assert commits[0][0] == 3
    assert core.stats.duplicates == 2
    assert core.stats.outcomes == {(PREDICTION, ""): 1}


def test_late_and_lost_queries_are_not_good():
    core = gate()
    core.deliver(NOW, report("late", 0, "c"))
    core.deliver(NOW, report("dropped", 1, "a", DROPPED, lost=("c",), reason="expired"))
    turn(core, NOW + 5)
    assert (core.stats.good, core.stats.late) == (0, 1)
    assert core.stats.outcomes == {(PREDICTION, ""): 1, (DROPPED, "expired"): 1}


def test_any_sink_makes_the_outcome_and_the_other_changes_nothing():
    core = gate("sinks-any")
    core.deliver(NOW, report("q", 0, "b", DROPPED, lost=("b",), reason="expired"))
    assert core.waiting == 1
    core.deliver(NOW, report("q", 1, "c", outputs={"x": 1}))
    (release,), commits = turn(core)
    assert release.outcome.kind == PREDICTION
    assert release.outcome.outputs == {"x": 1}
    assert commits[0][0] == 2


def test_any_sink_is_lost_when_all_are():
    core = gate("sinks-any")
    core.deliver(NOW, report("q", 0, "b", DROPPED, lost=("b",), reason="first"))
    core.deliver(NOW, report("q", 1, "c", FAILED, lost=("c",), reason="second"))
    ((release,), _) = turn(core)
    assert release.outcome.reason == "first"


def test_all_sinks_are_lost_with_one_and_the_others_come_too_late():
    core = gate("sinks-all")
    core.deliver(NOW, report("q", 0, "a", FAILED, lost=("b", "d"), reason="model-raised"))
    core.deliver(NOW, report("q", 1, "b"))
    ((release,), commits) = turn(core)
    assert release.outcome.kind == FAILED
    assert commits[0][0] == 2


def test_an_unreadable_report_is_a_loss_and_no_part_of_a_prediction():
    core = gate("sinks-all")
    core.deliver(NOW, report("q", 0, "d", FAILED, reason=reasons.CORRUPT))
    ((release,), _) = turn(core)
    assert (release.outcome.kind, release.outcome.reason) == (FAILED, reasons.CORRUPT)
    core.deliver(NOW, report("r", 1, "", FAILED, reason=reasons.BAD_HEADERS))  # not even the sender is known
    ((release,), _) = turn(core)
    assert release.outcome.reason == reasons.BAD_HEADERS


def test_a_sink_that_never_reports_fails_the_query():
    core = gate("sinks-all")
    core.deliver(NOW, report("q", 0, "b"))
    assert core.next_wake() == NOW + MIN_WAIT_SECONDS
    core.advance(NOW + MIN_WAIT_SECONDS)
    ((release,), commits) = turn(core)
    assert release.own
    assert release.outcome.reason == reasons.JOIN_TIMEOUT
    assert commits[0][0] == 1


def test_a_record_of_nobody_is_passed():
    core = gate()
    core.skip(0, 0)
    core.skip(0, 0)
    core.skip(3, 0)
    assert core.commits()[0][0] == 1


def test_foreign_and_repeated_offsets_are_not_touched():
    core = gate()
    core.deliver(NOW, report("q", 0, "c"))
    core.deliver(NOW, report("q", 0, "c"))
    core.deliver(NOW, report("q", 0, "c", partition=4))
    assert core.stats.stray == 2
    assert core.pending == 1


def test_what_does_not_fit_into_a_turn_leaves_with_the_next():
    core = gate()
    for offset in range(5):
        core.deliver(NOW, report(f"q{offset}", offset, "c"))
    assert len(core.collect(NOW, limit=3)) == 3
    assert len(core.collect(NOW, limit=3)) == 2


def test_a_revoked_partition_takes_its_outcomes_along():
    core = gate()
    core.deliver(NOW, report("q", 0, "c"))
    core.revoke(0)
    core.revoke(0)
    assert core.collect(NOW) == []
    assert core.commits() == {}


def test_a_new_gate_reads_what_was_released_behind_a_hole():
    first = gate("sinks-all")
    records = [report("hole", 0, "b"), report("q", 1, "b"), report("q", 2, "d"), report("hole", 3, "d")]
    for record in records[:3]:
        first.deliver(NOW, record)
    ((release,), commits) = turn(first)
    assert release.request_id == "q"
    offset, note = commits[0]
    assert offset == 0
    second = GateCore(SHAPES["sinks-all"].graph(), sinks="all")
    spans, egress = second.assign(0, offset, note)
    assert (spans, egress) == ((), 0)
    second.recall(0, 0, "q", NOW, NOW)
    for record in records:
        second.deliver(NOW, record)
    ((release,), commits) = turn(second, egress=1)
    assert release.request_id == "hole"
    assert commits[0][0] == 4


def test_a_new_partition_commits_at_once_so_that_its_egress_position_is_known():
    core = gate()
    assert core.commits() == {0: (0, "r1:;e0")}
    core.committed(0, 0)
    assert core.commits() == {}


# The memory of what was released ------------------------------------------------------------------------------------


def test_memory_is_bounded_by_number_but_keeps_what_is_not_committed():
    memory = ReleasedMemory(0, seconds=1e9, limit=10)
    for offset in range(100):
        memory.taken(offset, NOW + offset)
        memory.decide(f"q{offset}", NOW, NOW + offset)
        memory.written(offset, f"q{offset}", NOW, NOW + offset)
    assert len(memory) == 100
    memory.committed(50)
    assert len(memory) == 51  # q49 is not older than what is committed
    assert not memory.knows("q48", NOW)
    assert memory.knows("q49", NOW)
    memory.committed(100)
    assert len(memory) == 10
    assert memory.egress <= 90


def test_a_successor_remembers_as_long_as_its_predecessor():
    first, second = ReleasedMemory(0, seconds=10.0), ReleasedMemory(0, seconds=10.0)
    for number in range(20):
        first.decide(f"q{number}", NOW, NOW)  # all held from the beginning
    for number in range(20):
        first.written(number, f"q{number}", NOW, NOW + number)
        second.recall(number, f"q{number}", NOW, NOW + number)
    for offset, appended in enumerate((NOW + 15, NOW + 19, NOW + 25)):
        for memory in (first, second):
            memory.taken(offset, appended)
            memory.committed(offset + 1)
        known = [number for number in range(20) if first.knows(f"q{number}", NOW)]
        assert known == [number for number in range(20) if second.knows(f"q{number}", NOW)]
        assert known == list(range(int(appended - NOW) - 10, 20))
        assert first.egress == second.egress == known[0]


def test_an_id_that_is_used_again_while_its_first_query_is_held_is_another_query():
    memory = ReleasedMemory(0)
    memory.decide("q", NOW, NOW)
    memory.decide("q", NOW + 600, NOW + 600)
    memory.written(0, "q", NOW, NOW + 601)
    assert memory.knows("q", NOW + 600)
    assert (memory.egress, memory.egress_next) == (0, 1)


def test_an_id_sent_at_another_time_is_another_query():
    memory = ReleasedMemory(0)
    memory.decide("q", NOW, NOW)
    assert memory.knows("q", NOW + 1)
    assert not memory.knows("q", NOW + 600)
    memory.decide("q", NOW + 600, NOW + 600)
    assert memory.knows("q", NOW + 600)


def test_recalled_outcomes_set_the_next_position():
    memory = ReleasedMemory(5)
    assert memory.egress == 5
    memory.recall(7, "q", NOW, NOW)
    assert (memory.egress, memory.egress_next) == (7, 8)


# Several sinks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turned", [False, True])
def test_merging_does_not_depend_on_the_order_of_arrival(turned):
    a = StageTiming("a", 1, 1, 1, 1)
    first, second = ([a, StageTiming(stage, 1, 1, 1, 1)] for stage in "bc")
    reports = [
        ("b", Outcome(PREDICTION, outputs={"x": 1}, timings=first, flags={"b": {"default": True}})),
        ("c", Outcome(PREDICTION, outputs={"x": 2}, timings=second, flags={"c": {"stale": True}})),
    ]
    outcome = merged(reports[::-1] if turned else reports)
    assert list(outcome.outputs.items()) == [("b.x", 1), ("c.x", 2)]
    assert [timing.stage for timing in outcome.timings] == ["a", "b", "c"]
    assert outcome.flags == {"b": {"default": True}, "c": {"stale": True}}
