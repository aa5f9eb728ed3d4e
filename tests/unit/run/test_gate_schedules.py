"""The gate that ships, in a world in memory: killed at calls of its ports, with transactions that come to nothing."""

import asyncio
from collections import Counter

import pytest

from spillway.agents.run.gate import Gate
from tests.unit.run.gate_world import GateWorld

QUERIES = 60
SECONDS = 60.0  # of the world's time, until all is released


async def schedule(played):
    """Ask queries while gates die, then let them be until all is done."""
    world, random = played.world, played.random
    played.kills, played.breaks = 0.01, 0.1
    if len(played.sinks) > 1:
        played.ask_halves()
    for number in range(QUERIES):
        played.supervise()
        played.ask(number)
        if random.random() < 0.1:
            random.choice((played.stop, played.suspend))(random.randrange(played.replicas))
        await asyncio.sleep(0.1 * random.random())
    played.kills = played.breaks = 0.0
    played.complete_halves()
    end = world.now + SECONDS
    while world.now < end and (played.behind() or played.busy() or len(set(played.released())) < len(played.asked)):
        played.supervise()
        await asyncio.sleep(0.2)
    return played.busy()


def wrong(seed, **options):
    """Return what is wrong with the outcomes of a schedule, and how often what happened in it."""
    played = GateWorld(seed, **options)
    busy = played.world.run_until(schedule(played))
    seen = Counter(played.released())
    lost = [query for query in played.asked if query not in seen]
    return {
        "twice": sorted(query for query, times in seen.items() if times > 1), "lost": lost, "behind": played.behind(),
        "early": played.early(), "busy": busy,
        "failures": [repr(error) for error in played.world.loop.failures],
    }, played.counts  # fmt: skip


RIGHT = {"twice": [], "lost": [], "behind": [], "early": [], "busy": [], "failures": []}
SHAPES = [
    {},
    {"shape": "sinks-all", "sinks": ("b", "d")},
    {"shape": "sinks-any", "sinks": ("b", "c")},
    {"stateful": True},
]


@pytest.mark.parametrize("options", SHAPES)
def test_each_query_has_one_outcome_whatever_happens_to_the_gates(options):
    total = Counter()
    for seed in range(20):
        found, counts = wrong(seed, **options)
        assert found == RIGHT, f"seed {seed}"
        total.update(counts)
    assert min(total[what] for what in ("killed", "aborted", "silent", "stopped", "suspended")) > 0, total


# Faults that these schedules find, beside those of `tests.unit.proof.mutations` -------------------------------------


class GoesOnAfterAnAbort(Gate):
    """Takes what an aborted transaction held for written."""

    async def _begin_again(self):
        pass


class LeavesStandingOffsetsOut(Gate):
    """Writes outcomes without an offset where they commit nothing new, so that nothing tells whose they are."""

    async def start(self):
        write = self._transactions.write
        self._transactions.write = lambda records, offsets: write(
            records, {p: commit for p, commit in offsets.items() if commit != self._standing.get(p)}
        )
        await super().start()


class HearsNoVersions(Gate):
    """Does not look at what has become durable."""

    def _hear(self, records):
        self._versions = None
        return super()._hear(records)


MUTATIONS = [LeavesStandingOffsetsOut, GoesOnAfterAnAbort, HearsNoVersions]
MOST = 40  # seeds


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_fault_in_the_driver_is_found(mutation):
    for seed in range(MOST):
        for options in SHAPES:
            if wrong(seed, kind=mutation, **options)[0] != RIGHT:
                return
    pytest.fail(f"{mutation.__name__} went unseen in {MOST * len(SHAPES)} schedules")
