"""Processes that die under as many queries as two cores can bear: nothing lost, counts exact, memory bounded.

Each run of 40 s of sending takes minutes, and what it measured is appended to `build/heavy.jsonl`.
"""

import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from random import Random

import pytest

from tests.torture.heavy import Heavy, counted
from tests.waiting import until

pytestmark = pytest.mark.torture

RESULTS = Path(os.environ.get("HEAVY_RESULTS", "build/heavy.jsonl"))
SECONDS = 40.0
DRAIN_SECONDS = 300.0
MOST_MIB = 300.0  # of the process in which parts wait

BRANCHES = [{"name": "left", "model": "Branch"}, {"name": "right", "model": "Branch"}]
JOINS = {
    "stateless": ([{"name": "close", "model": "Meet", "after": ["left", "right"]}], {}, "close.0"),
    "stateful": (
        [{"name": "close", "model": "MeetAndCount", "after": ["left", "right"], "state": "shared"}], {}, "close.0"
    ),
    "gate": ([], {"sinks": "all"}, "gate.0"),
}  # fmt: skip
CHAIN = [
    {"name": "front", "model": "Front"},
    {"name": "count", "model": "Count", "after": ["front"], "state": "keyed"},
    {"name": "total", "model": "Total", "after": ["count"], "state": "shared"},
    {"name": "back", "model": "Back", "after": ["total"]},
]


def _reach(flood, share):
    until(lambda: flood.sent >= share * len(flood.ids), SECONDS, f"{share:.0%} are sent")


def _run(run, *, rate, size, strike, case):
    busy = os.getloadavg()[0]
    flood = run.flood(rate=rate, seconds=SECONDS, size=size)
    strike(flood)
    weight = run.judged(flood, DRAIN_SECONDS, counted, busy)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with RESULTS.open("a") as results:
        results.write(json.dumps({"case": case, "rate": rate, "size": size, **asdict(weight)}) + "\n")
    return weight


@pytest.mark.parametrize("join", JOINS)
def test_a_branch_that_is_away_costs_time_and_neither_answers_nor_memory(broker, unique_name, tmp_path, join):
    behind, more, holder = JOINS[join]

    def strike(flood):
        for share, name in ((0.2, "left.0"), (0.6, "right.0")):
            _reach(flood, share)
            run.kill(name)
            run.is_back(name)

    with Heavy(broker, unique_name, [*BRANCHES, *behind], tmp_path, **more) as run:
        weight = _run(run, rate=1_500, size=4_096, strike=strike, case=f"join-{join}")
    assert not weight.problems, "\n".join(weight.problems)
    holders = {name: most for name, most in weight.peaks.items() if name.startswith(holder)}
    assert 0 < max(holders.values()) < MOST_MIB, holders


@pytest.mark.parametrize("more", [0, 12])
def test_a_backlog_of_a_hundred_thousand_outlives_its_primaries(broker, unique_name, tmp_path, more):
    rng = Random(more)

    def strike(flood):
        _reach(flood, 0.5)
        run.kill(run.primary("total"))
        for _ in range(more):
            time.sleep(rng.uniform(1, 4))  # the seeded moment, not a wait for something
            run.kill(rng.choice(sorted(entry.name for entry in run.entries())))

    with Heavy(broker, unique_name, CHAIN, tmp_path) as run:
        weight = _run(run, rate=2_500, size=0, strike=strike, case=f"chain-{1 + more}")
    assert not weight.problems, "\n".join(weight.problems)
