"""Processes that die under as many queries as two cores can bear: nothing lost, counts exact, memory bounded."""

import pytest

from tests.torture.heavy import Heavy
from tests.waiting import until

pytestmark = pytest.mark.torture

SECONDS = 40.0
DRAIN_SECONDS = 300.0
# Of the process in which parts wait. A stateful one's, by what is documented: 90 MiB of an empty process, as much of
# 4,096 queries that wait (`queue`) with two parts of 4 kB each, as they came and decoded; 64 of the input's tail, 45
# of the join's parts, 8 that are read ahead, 40 of what is remembered, and 24 to 48 that malloc does not give back.
# A gate's: 90 of an empty process, 32 of parts that wait, 32 of those that are read again or held, 8 of a round's
# thousand, 32 in librdkafka's queues, 2.5 kB of each of 16,000 that wait by their envelopes, and as much of malloc.
MOST_MIB = {"stateless": 300.0, "stateful": 400.0, "gate": 340.0}

BRANCHES = [{"name": "left", "model": "Through"}, {"name": "right", "model": "Through"}]
JOINS = {
    "stateless": ([{"name": "close", "model": "Met", "after": ["left", "right"]}], {}, "close.0"),
    "stateful": (
        [{"name": "close", "model": "MetAndCounted", "after": ["left", "right"], "state": "shared"}], {}, "close.0"
    ),
    "gate": ([], {"sinks": "all"}, "gate.0"),
}  # fmt: skip


@pytest.mark.parametrize("join", JOINS)
def test_a_branch_that_is_away_costs_time_and_neither_answers_nor_memory(broker, unique_name, tmp_path, join):
    behind, more, holder = JOINS[join]
    with Heavy(broker, unique_name, [*BRANCHES, *behind], tmp_path, **more) as run:
        flood = run.flood(rate=1_500, seconds=SECONDS, size=4_096)
        for share, name in ((0.2, "left.0"), (0.6, "right.0")):
            until(lambda share=share: flood.sent >= share * len(flood.ids), SECONDS, f"{share:.0%} are sent")
            run.kill(name)
            run.is_back(name)
        problems = run.problems(flood, DRAIN_SECONDS)
    assert not problems, "\n".join(problems)
    holders = {name: most for name, most in run.peaks.items() if name.startswith(holder)}
    assert 0 < max(holders.values()) < MOST_MIB[join], holders
