"""All mutations, each with the schedules that are to show it, and the first seed that does.

A mutation is a subclass of a guard, or another function in its place; production code has no switch to turn one off.
The seeds are in `pins.json`; `python -m tests.unit.proof.shards.mutations` searches for them anew.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from spillway.agents.proof.shards.oracle import judged
from spillway.agents.proof.shards.schedule.drawing import drawn
from spillway.agents.proof.shards.schedule.scenario import Guards, Scenario
from spillway.checkpoint.modes import NSPB
from tests.unit.proof.shards import (
    environment_mutations,
    join_mutations,
    shard_mutations,
    state_mutations,
    stateless_mutations,
)

SEARCHED = 300
_PINS = Path(__file__).with_name("pins.json")
PINS = json.loads(_PINS.read_text())


class Mutation(NamedTuple):
    guards: Guards
    drawn: Callable[[int], Scenario]

    def schedule(self, seed):
        """The schedule of a seed, given up sooner than elsewhere if it does not end: without the mutation all do."""
        whole = self.drawn(seed)
        return replace(whole, most_seconds=whole.most_seconds / 3)

    def caught(self, seed):
        """What the oracle says of the schedule of a seed."""
        return judged(replace(self.schedule(seed), guards=self.guards), seed)[1]

    def first_catch(self):
        return next((seed for seed in range(SEARCHED) if self.caught(seed)), None)


def stateless(seed, topology=None):
    """A drawn schedule whose stages keep no state; what would strike a member strikes its stage's replicas."""
    scenario = drawn(seed, topology)
    return replace(
        scenario,
        topology=replace(scenario.topology, states=(), keyed=(), shards={}),
        stateless_policy="expired" if scenario.policy == "expired" else "naive",
        shards=1,
        faults=tuple(replace(fault, role="", shard=0) for fault in scenario.faults),
    )


def _schedule(harm, mode, name, seed):
    return harm.get(name) or drawn(seed, mode=mode)


def _with_harm(module, mode=None):
    return {name: Mutation(one, partial(_schedule, module.HARM, mode, name)) for name, one in module.MUTATIONS.items()}


MUTATIONS = {
    **{name: Mutation(guards, stateless) for name, guards in stateless_mutations.MUTATIONS.items()},
    **_with_harm(state_mutations, NSPB),
    **_with_harm(environment_mutations, NSPB),
    **{name: Mutation(guards, drawn) for name, guards in join_mutations.MUTATIONS.items()},
    **_with_harm(shard_mutations),
}

if __name__ == "__main__":
    _PINS.write_text(json.dumps({name: one.first_catch() for name, one in MUTATIONS.items()}, indent=2) + "\n")
