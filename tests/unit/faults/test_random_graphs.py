"""The pipelines that `spillway prove` draws: whatever `spillway check` takes of graphs, choices and joins."""

from itertools import product
from random import Random

import pytest

from agents.sim.faults.schedule.drawing import may_choose, random_topology
from lineage.errors import SpecError
from topology import dag
from topology.load import parse


def written(edges, choosers=(), sinks=None, states=()):
    lines = ["name: p", "slo: 1.0", "partitions: 3", *([f"sinks: {sinks}"] if sinks else []), "stages:"]
    for name, before in edges.items():
        lines += [f"  - name: {name}", "    model: m:M", f"    after: [{', '.join(before)}]"]
        lines += ["    choose: m:choose"] if name in choosers else []
        lines += ["    state: shared"] if name in states else []
    return "\n".join(lines)


def test_every_pipeline_that_is_drawn_is_taken():
    drawn = [random_topology(Random(seed), 3) for seed in range(300)]
    for topology in drawn:
        parse(written(topology.edges, topology.choices, topology.sinks, topology.states))
    rules = {(rule.mode, rule.on_loss) for topology in drawn for rule in topology.rules.values()}
    assert rules == {("all", "drop"), ("all", "partial"), ("any", "drop")}
    assert {topology.sinks for topology in drawn} == {None, "any", "all"}
    assert sum(bool(topology.choices) for topology in drawn) > 30
    assert sum(bool(topology.keyed) for topology in drawn) > 30
    assert sum(set(topology.shards.values()) > {1} for topology in drawn) > 10


@pytest.mark.parametrize("seed", range(40))
def test_who_may_choose_is_known(seed):
    edges = random_topology(Random(seed), 3).edges
    inner = [name for name, behind in dag.reverse(edges).items() if behind]
    for chosen in product((False, True), repeat=len(inner)):
        choosers = tuple(name for name, one in zip(inner, chosen, strict=True) if one)
        assert may_choose(edges, choosers) == taken(written(edges, choosers, "any"))


def taken(text):
    try:
        parse(text)
    except SpecError:
        return False
    return True
