"""Joins that drop the payloads of waiting parts beyond a bound in bytes, and have them read again when they close."""

import pytest

from spillway.agents.core.joins import MIN_WAIT_SECONDS, Fetch
from spillway.agents.core.request import Loss
from spillway.lineage import reasons
from spillway.lineage.message import FAILED
from tests.unit.core.builders import NOW, delivery, finish, stage_core
from tests.unit.core.test_gate import gate, report, turn

GONE = Loss(FAILED, reasons.PART_GONE, "the log does not have it any more")


def diamond(**options):
    return stage_core("diamond", "d", **{"payload_bytes": 250, **options})


def waits(core, count):
    """One part each of so many queries, of 100 bytes."""
    for offset in range(count):
        core.deliver(NOW, delivery(f"q{offset}", offset, "b", size=100))


def test_however_many_wait_none_fails_before_its_time():
    core = diamond()
    waits(core, 30_000)
    assert core.take_emits() == []
    assert core.waiting == 30_000


def test_requests_go_on_in_the_order_in_which_their_payloads_come():
    core = diamond(payload_bytes=0)
    waits(core, 4)
    for at, offset in enumerate((3, 1, 0, 2), 10):
        core.deliver(NOW, delivery(f"q{offset}", at, "c"))
    assert core.take_fetches() == [Fetch(0, offset) for offset in (3, 1, 0, 2)]
    for offset in range(4):
        core.fetched(NOW, Fetch(0, offset), f"again:q{offset}")
    emits = []
    for _ in range(4):
        emits += finish(core, None)
    assert [emit.request_id for emit in emits] == ["q0", "q1", "q2", "q3"]


def test_a_record_that_is_gone_fails_its_query_with_that_reason():
    core = diamond(payload_bytes=0)
    core.deliver(NOW, delivery("q", 0, "b", size=1))
    core.deliver(NOW, delivery("q", 1, "c", size=1))
    core.fetched(NOW, Fetch(0, 0), "stand-in", GONE)
    assert core.take_runs() == []
    (emit,) = core.take_emits()
    assert (emit.kind.value, emit.request_id, emit.loss.reason) == ("outcome", "q", reasons.PART_GONE)
    core.acked(emit)
    assert core.commits()[0][0] == 2


def test_a_tombstone_that_waited_passes_its_own_loss_on():
    core = diamond(payload_bytes=0)
    core.deliver(NOW, delivery("q", 0, "b", size=1))
    core.deliver(NOW, delivery("q", 1, "c", lost=("c",), size=1))
    core.fetched(NOW, *core.take_fetches(), "again")
    (emit,) = core.take_emits()
    assert (emit.payload, emit.loss) == ("c:q", None)


def test_what_comes_after_a_partition_has_gone_is_nobodys():
    core = diamond(payload_bytes=100)
    waits(core, 3)
    core.deliver(NOW, delivery("q2", 10, "c", size=100))
    core.revoke(NOW, 0)
    core.fetched(NOW, Fetch(0, 2), "again")
    assert (core.take_runs(), core.unsettled) == ([], 0)
    core.assign(0, 0)
    waits(core, 1)  # there is room again
    core.deliver(NOW, delivery("q0", 10, "c", size=100))
    assert core.take_fetches() == []


def test_a_late_part_of_a_parked_request_is_late():
    core = diamond(payload_bytes=0)
    core.deliver(NOW, delivery("q", 0, "b", size=1))
    core.advance(NOW + MIN_WAIT_SECONDS)
    core.deliver(NOW, delivery("q", 1, "c", size=1))
    assert core.stats.duplicates == 1
    core.fetched(NOW, Fetch(0, 0), "again")
    (emit,) = core.take_emits()
    core.acked(emit)
    assert core.commits()[0][0] == 2


@pytest.mark.parametrize("gone", [None, GONE])
def test_the_gate_has_reports_read_again_too(gone):
    core = gate("sinks-all", payload_bytes=0)
    for offset in range(3):
        core.deliver(NOW, report(f"q{offset}", offset, "b", outputs={"x": offset}, size=1))
    core.deliver(NOW, report("q1", 3, "d", outputs={"y": 1}, size=1))
    assert turn(core)[0] == []
    (fetch,) = core.take_fetches()
    assert fetch == Fetch(0, 1)
    core.fetched(NOW, fetch, report("q1", 1, "b", outputs={"x": 7}).payload, gone)
    ((release,), _) = turn(core)
    if gone is None:
        assert release.outcome.outputs == {"b.x": 7, "d.y": 1}
    else:
        assert (release.outcome.kind, release.outcome.reason) == (FAILED, reasons.PART_GONE)


MIB = 1 << 20


def closing(core, count, arrive):
    """Deliver both parts of `count` queries, of a MiB each, of which the first finds no room to wait in."""
    for offset in range(count):
        core.deliver(NOW, arrive(f"q{offset}", offset, "b", size=MIB))
    for offset in range(count):
        core.deliver(NOW, arrive(f"q{offset}", count + offset, "d" if arrive is report else "c", size=MIB))


def test_a_stage_reads_no_more_while_what_it_has_read_again_fills_its_room():
    core = diamond(payload_bytes=0)
    closing(core, 31, delivery)
    assert core.room  # 31 MiB of 32 wait for their other parts
    first, *others = core.take_fetches()
    core.deliver(NOW, delivery("q31", 62, "b", size=MIB))
    core.deliver(NOW, delivery("q31", 63, "c", size=MIB))
    assert not core.room
    for fetch in (first, *others, *core.take_fetches()):
        core.fetched(NOW, fetch, "again")
    assert core.room
    core.revoke(NOW, 0)
    assert core.room


def test_the_gate_reads_no_more_while_what_it_has_read_again_fills_its_room():
    core = gate("sinks-all", payload_bytes=0)
    closing(core, 20, report)
    assert core.room
    for fetch in core.take_fetches():
        core.fetched(NOW, fetch, report("q", fetch.offset, "b").payload)
    assert not core.room  # 40 MiB are decided and not yet written
    assert len(turn(core)[0]) == 20
    assert core.room
