"""Many schedules, one after the other, and what came of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agents.sim.faults.oracle import problems
from agents.sim.faults.play import run
from agents.sim.faults.schedule.drawing import drawn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agents.sim.faults.schedule.topologies import Topology
    from checkpoint.modes import Mode


@dataclass(slots=True)
class Proof:
    """What came of some schedules."""

    schedules: int = 0
    failed: dict[int, list[str]] = field(default_factory=dict)  # by seed: what the oracle found
    struck: Counter[str] = field(default_factory=Counter)  # faults that took place, by what and whom
    counts: Counter[str] = field(default_factory=Counter)  # what happened
    topologies: Counter[str] = field(default_factory=Counter)
    modes: Counter[str] = field(default_factory=Counter)
    queries: int = 0
    seconds: float = 0.0  # of virtual time
    events: int = 0

    def add(self, other: Proof) -> None:
        self.schedules += other.schedules
        self.failed |= other.failed
        for mine, theirs in (
            (self.struck, other.struck),
            (self.counts, other.counts),
            (self.topologies, other.topologies),
            (self.modes, other.modes),
        ):
            mine.update(theirs)
        self.queries += other.queries
        self.seconds += other.seconds
        self.events += other.events


def prove(seeds: Iterable[int], topology: Topology | None = None, mode: Mode | None = None) -> Proof:
    """Play the schedules of these seeds. `topology`, `mode`: None to have them drawn as well."""
    proof = Proof()
    for seed in seeds:
        scenario = drawn(seed, topology, mode)
        play = run(scenario, seed)
        found = problems(play)
        if found:
            proof.failed[seed] = found
        proof.schedules += 1
        proof.struck.update(play.result.struck)
        proof.counts.update(play.result.counts)
        proof.topologies[scenario.topology.name] += 1
        proof.modes[scenario.mode.name] += 1
        proof.queries += len(play.result.accepted)
        proof.seconds += play.result.seconds
        proof.events += play.result.events
    return proof
