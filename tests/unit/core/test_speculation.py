"""What a stage takes that rests on states which are not durable, call by call: held, superseded, taken back, let go."""

import pytest

from spillway.agents.core import joins
from spillway.agents.core.actions import Failed, Ok
from spillway.agents.core.share import Share
from spillway.agents.core.speculation import Speculation
from spillway.checkpoint.durability import Awaited, Resting
from spillway.lineage import reasons
from spillway.lineage.hops import Hop
from spillway.lineage.marks import Mark, Version
from tests.unit.core.builders import NEW, NOW, OLD, OTHER, Known, delivery, finish, marked, stage_core


def behind(shape="chain", stage="b", **options):
    known = Known()
    return stage_core(shape, stage, durability=known, **options), known


def position(core):
    return core.commits().get(0, (0, ""))[0]


def test_messages_carry_the_marks_and_the_offset_waits_for_them():
    core, known = behind("chain", "b")
    core.deliver(NOW, marked("q", 0, "a", OLD))
    (emit,) = finish(core, "c")
    assert emit.hop.marks == (OLD,)
    core.acked(emit)
    assert (core.unsettled, core.resting, position(core)) == (0, 1, 0)
    known.alive = {OLD}
    assert position(core) == 0  # nobody has told it
    core.durability_changed(NOW)
    assert (core.resting, position(core)) == (0, 1)


def test_what_is_dead_when_it_comes_leaves_no_trace():
    core, known = behind("chain", "b")
    known.gone = {OLD}
    core.deliver(NOW, marked("q", 0, "a", OLD))
    assert (core.stats.received, core.stats.dead, position(core)) == (1, 1, 1)
    core.deliver(NOW, marked("q", 1, "a", NEW, sequence=0))
    assert finish(core, "c")[0].hop.marks == (NEW,)


def test_the_dead_raise_the_watermark_all_the_same():
    core, known = behind("chain", "b")
    known.gone = {OLD}
    core.deliver(NOW, marked("q9", 0, "a", OLD, sequence=9, committed=7))
    core.deliver(NOW, delivery("q3", 1, "a", sequence=3))
    assert core.stats.duplicates == 1


def test_a_live_copy_that_came_too_early_is_taken_when_the_first_is_dead():
    core, known = behind("chain", "b")
    core.deliver(NOW, marked("q", 0, "a", OLD))
    core.deliver(NOW, marked("q", 1, "a", NEW, sequence=0))
    core.deliver(NOW, marked("q", 2, "a", NEW, sequence=0))  # shares that one's fate
    core.deliver(NOW, marked("q9", 3, "a", NEW, sequence=9, committed=8))  # past it: the watermark is no obstacle
    assert core.stats.duplicates == 1
    known.tell(core, gone={OLD})
    assert core.stats.dead == 1
    emits = finish(core, "c") + finish(core, "c") + finish(core, "c")
    assert [(emit.request_id, emit.hop.marks, emit.hop.sequence) for emit in emits] == [
        ("q9", (NEW,), 3),
        ("q", (NEW,), 1),
    ]
    known.tell(core, alive={NEW})
    core.acked_all(emits)
    assert position(core) == 4


def test_a_kept_copy_is_a_repetition_when_the_first_is_durable():
    core, known = behind("chain", "b")
    core.deliver(NOW, marked("q", 0, "a", OLD))
    core.deliver(NOW, marked("q", 1, "a", NEW, sequence=0))
    core.acked_all(finish(core, "c"))
    known.tell(core, alive={OLD})
    assert core.stats.duplicates == 1
    assert core.take_runs() == []
    assert position(core) == 2
    known.tell(core, gone={NEW})  # concerns nobody any more
    assert core.stats.dead == 0


def test_the_dead_leave_the_queue_and_what_runs_is_not_sent():
    core, known = behind("chain", "b")
    for offset in range(3):
        core.deliver(NOW, marked(f"q{offset}", offset, "a", OLD if offset < 2 else OTHER))
    (batch,) = core.take_runs()
    assert (core.depth, core.unsettled) == (2, 3)
    known.tell(core, gone={OLD})
    assert (core.depth, core.unsettled) == (1, 2)
    core.complete(NOW, batch, [Ok({"c": "out"})], 0.01)
    assert core.take_emits() == []
    assert [emit.request_id for emit in finish(core, "c")] == ["q2"]
    assert core.unsettled == 1


def test_a_sent_request_with_a_dead_part_waits_again_for_its_sender():
    core, known = behind("diamond", "d")
    core.deliver(NOW, marked("q", 0, "b", OLD))
    core.deliver(NOW, delivery("q", 1, "c"))
    core.acked_all(finish(core, None))
    known.tell(core, gone={OLD}, now=NOW + 30)
    assert (core.waiting, core.resting, position(core)) == (1, 0, 1)
    core.advance(NOW + 29 + joins.READ_SECONDS)  # it waits anew
    assert core.take_emits() == []
    core.deliver(NOW + 39, marked("q", 2, "b", NEW, sequence=0))
    (emit,) = finish(core, None)
    assert (emit.hop.marks, emit.hop.sequence) == ((NEW,), 1)  # the dead part's place is given up
    known.tell(core, alive={NEW}, now=NOW + 39)
    core.acked(emit)
    assert position(core) == 3


def test_a_dead_part_of_a_waiting_request_is_taken_out():
    core, known = behind("diamond", "d")
    core.deliver(NOW, marked("q", 0, "b", OLD))
    known.tell(core, gone={OLD})
    assert (core.waiting, position(core)) == (0, 1)


def test_a_part_that_any_other_made_superfluous_serves_when_that_one_is_dead():
    core, known = behind("any", "d")
    core.deliver(NOW, marked("q", 0, "b", OLD))
    core.deliver(NOW, delivery("q", 1, "c"))
    core.acked_all(finish(core, "e"))
    assert position(core) == 0
    known.tell(core, gone={OLD})
    (emit,) = finish(core, "e")
    assert emit.work.parts[0].predecessor == "c"
    core.acked(emit)
    assert position(core) == 2


def test_poison_is_kept_superseded_and_told_like_any_other_copy():
    core, known = behind("chain", "b")
    core.deliver(NOW, marked("q", 0, "a", OLD))
    core.fail(NOW, marked("q", 1, "a", NEW, sequence=0), reasons.CORRUPT)
    assert finish(core, "c")[0].hop.marks == (OLD,)
    known.tell(core, gone={OLD})
    letter, outcome = core.take_emits()
    assert letter.hop.marks == outcome.hop.marks == (NEW,)
    core.acked_all([letter, outcome])
    assert position(core) == 1
    known.tell(core, alive={NEW})
    assert position(core) == 2


def test_failures_tell_what_they_rest_on():
    core, _ = behind("chain", "b")
    core.deliver(NOW, marked("q", 0, "a", OLD))
    (batch,) = core.take_runs()
    core.complete(NOW, batch, [Failed(reasons.MODEL_RAISED, "boom")], 0.01)
    assert [emit.hop.marks for emit in core.take_emits()] == [(OLD,), (OLD,)]


def test_what_is_not_durable_takes_room_and_goes_with_its_partition():
    core, _ = behind("chain", "b", queue_limit=2)
    for offset in range(8):
        core.deliver(NOW, marked(f"q{offset}", offset, "a", OLD))
        core.acked_all(finish(core, "c"))
    assert core.resting == 8
    assert not core.room
    core.revoke(NOW, 0)
    assert core.resting == 0
    core.durability_changed(NOW)


class CrossesOffWhatMayDie(Speculation):
    __slots__ = ()

    def superfluous(self, entry, delivery):
        return entry.case is not None and entry.case.open and super().superfluous(entry, delivery)


class Crossing(Share):
    __slots__ = ()
    speculation_type = CrossesOffWhatMayDie


@pytest.mark.parametrize(("share", "runs"), [(Share, 0), (Crossing, 1)])
def test_a_late_part_is_crossed_off_when_it_cannot_die_any_more(share, runs, monkeypatch):
    """Else the request is forgotten as complete, and the live part makes another one."""
    monkeypatch.setattr(joins, "RECENT_LIMIT", 0)
    core, known = behind("any", "d")
    core.share_type = share
    core.assign(0, 0)
    core.deliver(NOW, delivery("q", 0, "b"))
    core.acked_all(finish(core, "e"))
    core.deliver(NOW, marked("q", 1, "c", OLD))
    core.committed(0, position(core))
    known.tell(core, gone={OLD})
    core.committed(0, 2)
    core.deliver(NOW, marked("q", 2, "c", NEW, sequence=2, committed=2))
    assert len(core.take_runs()) == runs


def test_without_durability_nothing_of_it_is_there():
    core = stage_core("chain", "b")
    core.deliver(NOW, marked("q", 0, "a", OLD))
    (emit,) = finish(core, "c")
    assert emit.hop == Hop("b", 0, 0, 0, 0)
    core.acked(emit)
    core.durability_changed(NOW)
    assert position(core) == 1


# What waits for versions ---------------------------------------------------------------------------------------------


def test_versions_are_decided_from_both_ends():
    known = Known()
    awaited = Awaited(known)
    marks = [Mark("s", 0, Version(1, n)) for n in range(1, 6)]
    things = [Resting() for _ in marks]
    for thing, mark in zip(things, marks, strict=True):
        awaited.add(thing, (mark, OTHER))
    assert [thing.open for thing in things] == [2] * 5
    known.alive = set(marks[:2])
    known.gone = set(marks[4:])
    assert awaited.decided() == ([], things[4:])
    known.alive.add(OTHER)
    assert awaited.decided() == (things[:2], [])
    known.gone = set(marks[2:])
    assert awaited.decided() == ([], [things[3], things[2]])
    assert awaited._lines == {}
