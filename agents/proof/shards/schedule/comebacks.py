"""Stories of who was away while others went on: a reader of a log that was compacted, a sender that was replaced."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from spillway.agents.core.gate import GATE
from spillway.agents.proof.shards.schedule.scenario import Fault, Kind

if TYPE_CHECKING:
    from random import Random

    from spillway.agents.proof.shards.schedule.scenario import Scenario

_BEHIND = 0.3  # share of schedules in which a reader goes on where a log was compacted, where anything may come of it
_REPLACED = 0.06  # share of those in which a sender stands still, with messages in hand that others send in its place
_KEPT = 0.1  # share of a schedule's other faults that stay


def with_comeback(scenario: Scenario, random: Random) -> Scenario:
    """Now and then, play one of these stories in place of most of what else goes wrong."""
    story = random.random()
    if story < _BEHIND:
        return _behind(scenario, random)
    return _replaced(scenario, random) if story < _BEHIND + _REPLACED else scenario


def _with(scenario: Scenario, random: Random, *faults: Fault) -> Scenario:
    return replace(scenario, faults=(*(one for one in scenario.faults if random.random() < _KEPT), *faults))


def _behind(scenario: Scenario, random: Random) -> Scenario:
    """Add a change of a shard's primary while its newest version is open, a rollback when that dies, and a compaction.

    One reader of its log is away all the while: the reign in between started from a version that is gone by then.
    """
    topology, graph = scenario.topology, scenario.topology.graph()
    found = [
        (before, stage, reader)
        for stage in topology.states
        for before in graph.rests_on(stage)
        for reader in (GATE, *topology.edges)
        if stage in graph.rests_on(None if reader == GATE else reader)
    ]
    if not found or scenario.mode.holds:  # nothing comes of a version that is open
        return scenario
    before, stage, reader = random.choice(found)
    at = random.uniform(0.1, 0.4)
    first = at + random.uniform(0.35, 0.6)
    then = first + random.uniform(0.08, 0.25)
    scenario = replace(
        scenario,
        topology=replace(topology, shards={**topology.shards, before: 1, stage: 1}),
        backups=max(1, scenario.backups),
        queries=30,
        rate=30.0,
        compactions=30.0,
        write_seconds=0.002,
        reports=True,
    )
    return _with(
        scenario,
        random,
        Fault(Kind.SLOW, before, "primary", at, seconds=1.5),
        Fault(Kind.CRASH, stage, "primary", first, seconds=0.02),
        Fault(Kind.CRASH, before, "primary", then, seconds=0.02),
        Fault(Kind.LATE, reader, at=first - 0.1, seconds=scenario.lag + random.uniform(1.0, 2.0), of=stage),
    )


def _replaced(scenario: Scenario, random: Random) -> Scenario:
    """Add a stage that stands still with messages in flight, which arrive once its readers have forgotten them."""
    edges, states = scenario.topology.edges, scenario.topology.states
    senders = [name for name in edges if name not in states and any(name in after for after in edges.values())]
    if not senders:
        return scenario
    sender, at = random.choice(senders), random.uniform(0.2, 0.5)
    scenario = replace(
        scenario, queries=30, rate=20.0, slo=1_000.0, policy="naive", commit_every=0.02, write_seconds=0.002
    )
    return _with(
        scenario,
        random,
        Fault(Kind.SLOW, sender, at=at - random.uniform(0.2, 0.4), seconds=1.0),
        Fault(Kind.PAUSE, sender, at=at, seconds=random.uniform(1.0, 2.0), moves=random.random() < 0.5),  # noqa: PLR2004 (a share)
    )
