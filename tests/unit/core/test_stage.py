"""The stage's core call by call: what it asks for, and when it lets an offset go."""

import pytest

from spillway.agents.core.actions import EmitKind, Ok, timing_of
from spillway.agents.core.request import Loss
from spillway.agents.core.stage import StageCore
from spillway.checkpoint.notes import decode
from spillway.lineage import reasons
from tests.unit.core.builders import NOW, delivery, finish, shown, stage_core
from tests.unit.core.shapes import SHAPES


def test_a_record_goes_through_and_is_done_when_its_message_is_acknowledged():
    core = stage_core("chain", "b")
    core.deliver(NOW, delivery("q", 0, "a"))
    (emit,) = finish(core, "c")
    assert shown([emit]) == [("result", "c", "q", ())]
    assert (emit.hop.stage, emit.hop.sequence, emit.hop.committed) == ("b", 0, 0)
    assert emit.payload == "out"
    assert core.unsettled == 1
    assert core.commits() == {}
    core.acked(emit)
    assert core.unsettled == 0
    assert core.commits()[0][0] == 1
    core.committed(0, 1)
    assert core.commits() == {}


def test_a_request_is_done_when_all_its_messages_are():
    core = stage_core("diamond", "a")
    core.deliver(NOW, delivery("q", 0))
    first, second = finish(core, "b", "c")
    core.acked(first)
    core.acked(first)  # told twice
    assert core.commits() == {}
    core.acked(second)
    assert core.commits()[0][0] == 1


def test_commits_are_in_order_whatever_ends_first():
    core = stage_core("chain", "b", instances=3)
    for offset in range(3):
        core.deliver(NOW, delivery(f"q{offset}", offset, "a"))
    emits = finish(core, "c")
    core.acked(emits[2])
    core.acked(emits[1])
    assert core.commits() == {}
    core.acked(emits[0])
    assert core.commits()[0][0] == 3


def test_the_hop_tells_what_is_committed():
    core = stage_core("chain", "b")
    core.deliver(NOW, delivery("q0", 0, "a"))
    core.acked_all(finish(core, "c"))
    core.committed(0, 1)
    core.deliver(NOW, delivery("q1", 1, "a"))
    (emit,) = finish(core, "c")
    assert (emit.hop.sequence, emit.hop.committed) == (1, 1)


def test_a_record_handed_out_again_or_of_a_foreign_partition_is_not_touched():
    core = stage_core("chain", "b")
    core.deliver(NOW, delivery("q", 0, "a"))
    core.deliver(NOW, delivery("q", 0, "a"))
    core.deliver(NOW, delivery("q", 0, "a", partition=5))
    core.fail(NOW, delivery("q", 0, "a", partition=5), reasons.CORRUPT)
    assert core.stats.stray == 3
    assert core.stats.received == 1


def test_a_choice_goes_on_with_the_path():
    core = stage_core("cascade", "a")
    core.deliver(NOW, delivery("q", 0, path={"x": ("y",)}))
    (batch,) = core.take_runs()
    core.complete(NOW, batch, [Ok({None: "out"}, chosen=())], 0.01)
    (emit,) = core.take_emits()
    assert emit.kind is EmitKind.OUTCOME
    assert emit.path == {"x": ("y",), "a": ()}


def test_a_drop_is_told_to_the_joins_that_would_wait():
    core = stage_core("diamond", "b", policy="expired")
    core.deliver(NOW + 5, delivery("q", 0, "a"))
    (emit,) = core.take_emits()
    assert shown([emit]) == [("tombstone", "d", "q", ("b",))]
    assert emit.loss.reason == reasons.EXPIRED
    assert emit.loss.text.endswith(" (dropped by policy expired; 'policy: naive' drops nothing)")
    core.acked(emit)
    assert core.commits()[0][0] == 1
    assert core.stats.dropped == {reasons.EXPIRED: 1}
    assert core.unsettled == 0


def test_poison_without_an_id_is_only_kept():
    core = stage_core("chain", "b")
    core.fail(NOW, delivery("", 0), reasons.BAD_HEADERS)
    core.fail(NOW, delivery("", 1), reasons.BAD_HEADERS)  # no id is not an id: this is no repetition
    emits = core.take_emits()
    assert [emit.kind for emit in emits] == [EmitKind.DEAD_LETTER] * 2
    core.acked_all(emits)
    assert core.commits()[0][0] == 2


def test_repeated_poison_is_told_once():
    core = stage_core("chain", "b")
    core.fail(NOW, delivery("q", 0, "a", sequence=3), reasons.CORRUPT)
    core.fail(NOW, delivery("q", 1, "a", sequence=3), reasons.CORRUPT)
    assert len(core.take_emits()) == 2
    assert core.stats.duplicates == 1


# Joins --------------------------------------------------------------------------------------------------------------


def test_a_poisoned_part_of_an_unknown_sender_ends_the_request():
    core = stage_core("diamond", "d")
    record = delivery("q", 0)
    core.fail(NOW, record, reasons.BAD_HEADERS, "no hop")
    letter, outcome = core.take_emits()
    assert letter.kind is EmitKind.DEAD_LETTER
    assert outcome.loss == Loss("failed", reasons.BAD_HEADERS, "no hop")
    assert record.payload == ":q"  # the driver finds what it put there
    core.acked_all([letter, outcome])
    assert core.commits()[0][0] == 1


def test_a_part_that_comes_too_late_is_done():
    core = stage_core("any", "d")
    core.deliver(NOW, delivery("q", 0, "b"))
    core.deliver(NOW, delivery("q", 1, "c"))
    core.acked_all(finish(core, "e"))
    assert core.commits()[0][0] == 2
    assert core.stats.duplicates == 1


# Partitions come and go ---------------------------------------------------------------------------------------------


def test_a_new_owner_knows_what_the_note_names():
    first = stage_core("any", "d")
    parts = [delivery("q0", 0, "b"), delivery("q1", 1, "b"), delivery("q0", 2, "c"), delivery("q1", 3, "c")]
    first.deliver(NOW, parts[0])
    first.deliver(NOW, parts[1])
    first.acked_all(finish(first, "e"))
    first.acked_all(finish(first, "e"))
    offset, note = first.commits()[0]
    assert offset == 2
    second = stage_core("any", "d")
    spans = second.assign(0, offset, note)
    assert spans == ((0, 2),) == decode(note, 2).spans
    for part in parts[:2]:
        second.remember(part)
    for part in parts[2:]:
        second.deliver(NOW, part)
    assert second.take_runs() == []
    assert second.commits()[0][0] == 4


def test_a_revoked_partition_leaves_the_queue_and_its_messages_change_nothing():
    core = stage_core("chain", "b")
    core.assign(1, 0)
    core.deliver(NOW, delivery("running", 0, "a"))
    core.deliver(NOW, delivery("queued", 1, "a"))
    core.deliver(NOW, delivery("other", 0, "a", partition=1))
    (batch,) = core.take_runs()
    core.revoke(NOW, 0)
    core.revoke(NOW, 7)  # never ours
    assert core.partitions == (1,)
    core.complete(NOW, batch, [Ok({"c": "out"})], 0.01)
    assert core.take_emits() == []
    core.acked_all(finish(core, "c"))
    assert core.unsettled == 0
    assert core.commits() == {1: (1, core.commits()[1][1])}


# Misuse -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("results", "says"), [([], "1 requests, 0 results"), ([Ok({})], "has no destination")])
def test_results_must_answer_the_batch_and_go_somewhere(results, says):
    core = stage_core("chain", "b")
    core.deliver(NOW, delivery("q", 0, "a"))
    (batch,) = core.take_runs()
    with pytest.raises(ValueError, match=says):
        core.complete(NOW, batch, results, 0.01)


def test_a_join_needs_a_rule():
    with pytest.raises(ValueError, match="needs a join rule"):
        StageCore(SHAPES["diamond"].graph(), "d", None)


def test_timings_are_those_of_the_request():
    core = stage_core("chain", "b")
    core.deliver(NOW, delivery("q0", 0, "a"))
    core.deliver(NOW, delivery("q1", 1, "a"))
    finish(core, "c", now=NOW + 2)
    (batch,) = core.take_runs()
    timing = timing_of("b", batch.requests[0], NOW + 3, executed=1.0, batch=1)
    assert (timing.queued, timing.waited, timing.executed, timing.batch) == (0.0, 2.0, 1.0, 1)
    assert timing.arrived == int(NOW * 1e6)
