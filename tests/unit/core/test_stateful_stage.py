"""A stateful stage's core, where a schedule of `spillway prove` has found it wrong."""

from dataclasses import replace

import pytest

from spillway.agents.core.actions import Ok
from spillway.agents.core.batching import Batcher
from spillway.agents.core.crash_suspects import Suspects
from spillway.agents.core.join_rules import Rule
from spillway.agents.core.policies import make
from spillway.agents.core.policy import StageView
from spillway.agents.core.request import Delivery
from spillway.agents.core.stateful_stage import StatefulCore
from spillway.agents.proof.shards.schedule.scenario import TOPOLOGIES
from spillway.checkpoint.logs import Logs
from spillway.checkpoint.modes import MODES
from spillway.checkpoint.reign import Copy, Reign, Seal, Write
from spillway.lineage.hops import Hop
from spillway.lineage.marks import INITIAL, Mark, Version
from spillway.lineage.replication import Base, Fence, InputPlace, Manifest

STATES = {**TOPOLOGIES, "diamond-of-states": replace(TOPOLOGIES["diamond"], states=("b", "c", "d"))}


def batcher(stage):
    return Batcher(make("naive", StageView(stage=stage, replica=0, instances=1)), 4, 0.0, 1, lambda _: 0.01)


def core_of(stage, topology, mode="nspb", rule=None):
    graph = STATES[topology].graph()
    place = (stage, 0)
    logs = Logs([place, *((name, 0) for name in graph.rests_on(stage))])
    logs.take(place, Fence(1, "me"))
    logs.take(place, Base(1, "me", INITIAL, ((1, INITIAL),)))
    for one in (place, *((name, 0) for name in graph.rests_on(stage))):
        logs.caught_up(one)
    reign = Reign(place, 1, INITIAL, MODES[mode])
    core = StatefulCore(graph, stage, batcher(stage), reign=reign, logs=logs, rule=rule or Rule())
    core.assign_place(InputPlace(0, 0))
    return core, logs


def part(offset, sender="", request="q", *, rests=None, lost=()):
    """`rests`: the n of the sender's version that it rests on."""
    marks = () if rests is None else (Mark(sender, 0, Version(1, rests)),)
    hop = Hop(sender, 1, 0, offset, 0, marks) if sender else None
    return Delivery(request, 0, offset, 0.0, 100.0, sender, hop, lost=lost, appended=0.0, payload="x")


def required(core):
    return {str(mark) for entry in core.reign._entries for mark in entry.requires}


def records(core):
    return [one for entry in core.reign._entries for one in (*entry.batch.taken, *entry.batch.dropped)]


def test_a_request_whose_record_cannot_be_read_is_recorded_once():
    core, _ = core_of("a", "chain")
    core.fail(0.0, part(0), "bad-input")
    assert [record.offset for record in records(core)] == [0]
    assert core._shares[0].offsets.position == 1


def test_a_late_part_that_cannot_be_read_has_a_letter_and_no_record():
    core, _ = core_of("d", "joined")
    core.fail(0.0, part(0, "c"), "bad-input")
    core.fail(0.0, part(1, "b"), "bad-input")
    assert [record.offset for record in records(core)] == [0]
    assert core._shares[0].offsets.position == 2


def test_a_partial_join_requires_what_its_lost_parts_rest_on():
    core, _ = core_of("d", "joined", rule=Rule("all", "partial"))
    core.deliver(0.0, part(0, "b", rests=1, lost=("b",)))
    core.deliver(0.0, part(1, "c"))
    (batch,) = core.take_runs()
    core.computed(0.0, batch, [Ok({None: "y"})], 0.01, changes=True)
    assert required(core) == {"b/0 e1.v1"}


@pytest.mark.parametrize("rule", [Rule("all", "partial"), Rule("any")], ids=str)
def test_of_several_losses_each_is_required(rule):
    core, _ = core_of("d", "diamond-of-states", rule=rule)
    core.deliver(0.0, part(0, "b", rests=1, lost=("b",)))
    core.deliver(0.0, part(1, "c", rests=2, lost=("c",)))
    assert [emit.lost for emit in core.take_emits()] == [("d",)]
    assert required(core) == {"b/0 e1.v1", "c/0 e1.v2"}


def test_a_join_that_nobody_completes_in_time_requires_what_came():
    core, _ = core_of("d", "diamond-of-states", rule=Rule("all", "partial"))
    core.deliver(0.0, part(0, "b", rests=1, lost=("b",)))
    core.advance(1_000.0)
    assert required(core) == {"b/0 e1.v1"}


def test_a_dead_letter_requires_what_its_record_rests_on():
    core, _ = core_of("d", "joined", rule=Rule("all", "partial"))
    core.fail(0.0, part(0, "b", rests=1), "bad-input")
    assert required(core) == {"b/0 e1.v1"}


def test_orders_that_letting_messages_go_brings_are_given_too():
    """Where a version is one transaction, its messages are acknowledged with it; the next may be sealed by that."""
    core, logs = core_of("a", "chain", "kafka-eos")
    core.fail(0.0, part(0, request="q0"), "bad-input")
    (copy,) = core.take_orders()
    core.copied(0.0, copy.version, "one")
    write, seal = core.take_orders()
    assert isinstance(write, Write)
    assert isinstance(seal, Seal)
    core.take_emits()
    core.fail(0.0, part(1, request="q1"), "bad-input")  # another version, meanwhile
    (copy,) = core.take_orders()
    assert isinstance(copy, Copy)
    core.copied(0.0, copy.version, "two")
    logs.take(("a", 0), Manifest(Version(1, 1), ((1, INITIAL),), (), "me"))
    core.durability_changed(0.0)
    core.completed(0.0, Version(1, 1))
    assert [type(order) for order in core.take_orders() if isinstance(order, Write | Seal)] == [Write, Seal]


def test_a_divided_batch_is_a_version_for_each_part():
    core, _ = core_of("a", "chain")
    core.deliver(0.0, part(0, request="first"))
    (first,) = core.take_runs()
    for offset, request in enumerate(("q1", "alone", "q3"), start=1):
        core.deliver(0.0, part(offset, request=request))
    suspects = Suspects()
    suspects.raised(["alone"])
    suspects.raised(["alone"])
    core.apart = suspects.apart
    versions = []

    def run(batch):
        results = [Ok({"b": "y"}) for _ in batch.requests]
        core.computed(0.0, batch, results, 0.01, changes=True)
        versions.append([record.request for record in core.reign._entries[-1].batch.taken])
        (due,) = core.take_updates()
        assert due is batch
        core.updated(0.0, 0.01)
        for order in core.take_orders():
            if isinstance(order, Copy):
                core.copied(0.0, order.version, "copied")

    run(first)
    while runs := core.take_runs():
        (batch,) = runs
        assert all(request.final for request in batch.requests)
        assert core._running is batch
        run(batch)
    assert versions == [["first"], ["q1", "q3"], ["alone"]]
    assert core._batcher.load().running == 0
    assert core.settled is False  # nothing is durable yet
    assert core.depth == 0


def test_what_a_running_batch_will_cover_is_left_to_it():
    core, _ = core_of("a", "chain")
    core.deliver(0.0, part(0))
    assert len(core.take_runs()) == 1
    core.deliver(0.0, part(1))  # a repetition
    core.cover()
    assert core.reign.recorded == 0


def test_a_base_that_becomes_durable_later_is_told_then():
    """Its member trims what it keeps of the input by it; else a full one would never read on."""
    _, logs = core_of("b", "chain")
    place, covered = ("b", 0), InputPlace(0, 7)
    logs.take(place, Manifest(Version(1, 1), ((1, INITIAL),), (Mark("a", 0, Version(1, 1)),), "me"))
    logs.take(place, Fence(2, "me"))
    logs.take(place, Base(2, "me", Version(1, 1), ((1, INITIAL), (2, Version(1, 1)))))
    graph = TOPOLOGIES["chain"].graph()
    core = StatefulCore(graph, "b", batcher("b"), reign=Reign(place, 2, Version(1, 1)), logs=logs)
    core.assign_place(covered)
    core.durability_changed(0.0)
    assert (core.durable_places, core.commits(), core._shares[0].committed) == ({}, {}, 0)
    assert core.durable_n == core.reign.base.n - 1
    logs.take(("a", 0), Fence(1, "other"))
    logs.take(("a", 0), Base(1, "other", INITIAL, ((1, INITIAL),)))
    logs.take(("a", 0), Manifest(Version(1, 1), ((1, INITIAL),), (), "other"))
    core.durability_changed(0.0)
    assert (core.durable_places, core.commits(), core._shares[0].committed) == ({0: covered}, {0: (7, "")}, 7)
    assert core.durable_n == core.reign.base.n


def served(core, logs):
    """Have everything that was taken computed, written and durable."""
    while (runs := core.take_runs()) or not core.settled:
        for batch in runs:
            core.computed(0.0, batch, [Ok({"b": "y"}) for _ in batch.requests], 0.01, changes=False)
        core.acked_all(core.take_emits())
        for order in core.take_orders():
            if isinstance(order, Copy):
                core.copied(0.0, order.version, "copied")
            elif isinstance(order, Seal):
                logs.take(core.reign.place, Manifest(order.version, ((1, INITIAL),), (), "me"))
                core.durability_changed(0.0)
                core.completed(0.0, order.version)


def test_what_leads_to_nothing_is_covered_by_a_version_of_its_own():
    """Else the input could fill up with repetitions, and nothing would ever become durable again."""
    core, logs = core_of("a", "chain")
    core.deliver(0.0, part(0))
    served(core, logs)
    assert core.durable_places[0].position == 1
    core.deliver(1.0, part(1))
    core.tick(1.0, {})
    assert core.reign.recorded == 2
    served(core, logs)
    assert core.durable_places[0].position == 2
    core.deliver(1.5, part(2))
    core.tick(1.5, {})  # not for each one
    assert core.reign.recorded == 2
    core.tick(2.1, {})
    served(core, logs)
    assert core.durable_places[0].position == 3
    core.tick(9.0, {})  # not for nothing
    assert core.reign.recorded == 3


def test_what_requests_hold_back_that_wait_for_what_is_not_read_does_not_stop_reading():
    core, logs = core_of("d", "joined")
    for offset in range(4):
        core.deliver(0.0, part(offset, "c", f"q{offset}"))
    assert core.held_by_joins == 4
    core.deliver(0.0, part(4, "b", "q2"))  # it is served, and covered above the position
    served(core, logs)
    assert core.held_by_joins == 5
    core.deliver(0.0, part(5, "b", "q0"))
    assert core.held_by_joins == 0  # it is under way
    served(core, logs)
    assert core.held_by_joins == 5
    for offset, number in ((6, 1), (7, 3)):
        core.deliver(0.0, part(offset, "b", f"q{number}"))
    served(core, logs)
    assert core.held_by_joins == 0
    assert (core.durable_places[0].position, core.stats.failed) == (8, {})
