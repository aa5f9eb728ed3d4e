"""Random pipelines: any graph of a few stages that `check` would take, with states, joins and choices anywhere."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Literal

from agents.core.joins import Rule
from agents.sim.faults.schedule.topologies import Topology
from topology import dag

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

DRAWN = "drawn"  # the name of all of them
_NAMES = "abcdef"
_MOST_STATES = 3
_ROWS = 0.2  # share of pipelines whose state comes behind two stages in a row
_RULES = (Rule("all", "drop"), Rule("all", "partial"), Rule("all", "partial"), Rule("any"))

Edges = dict[str, tuple[str, ...]]
Choices = dict[str, tuple[tuple[str, ...], ...]]


def random_topology(random: Random, partitions: int) -> Topology:
    """Draw a pipeline with one to three stateful stages. `partitions`: the most shards that a stage has."""
    if random.random() < _ROWS:
        row: Edges = {name: tuple(_NAMES[max(0, index - 1) : index]) for index, name in enumerate(_NAMES[:4])}
        return Topology(DRAWN, row, ("c",) if random.random() < 0.5 else ("c", "d"))  # noqa: PLR2004 (a share)
    edges = _edges(random, random.choice((2, 3, 3, 4, 4, 4, 5, 6)))
    joins = [name for name, before in edges.items() if len(before) > 1]
    first = random.choice(joins if joins and random.random() < 0.5 else list(edges))  # noqa: PLR2004 (a share)
    others = [name for name in edges if name != first]
    states = tuple(sorted((first, *random.sample(others, random.randint(0, min(_MOST_STATES - 1, len(others)))))))
    successors = dag.reverse(edges)
    several = sum(not behind for behind in successors.values()) > 1
    sinks: Literal["any", "all"] | None = random.choice(("any", "all")) if several else None
    return Topology(
        DRAWN,
        edges,
        states,
        {name: random.choice(_RULES) for name in joins},
        sinks,
        _choices(random, edges),
        {name: random.randint(1, partitions) for name in states if random.random() < 0.3},  # noqa: PLR2004 (a share)
        tuple(name for name in states if random.random() < 0.3),  # noqa: PLR2004 (a share)
    )


def _edges(random: Random, count: int) -> Edges:
    """Draw who comes after whom: often in a row, so that states rest on states, and often in branches that meet."""
    edges: Edges = {_NAMES[0]: ()}
    for name in _NAMES[1:count]:
        if random.random() < 0.07:  # noqa: PLR2004 (a share: another root)
            edges[name] = ()
            continue
        earlier = list(edges)
        ends = [one for one, behind in dag.reverse(edges).items() if not behind]
        first = random.choice(ends if random.random() < 0.6 else earlier)  # noqa: PLR2004 (a share)
        joins = min(random.choice((1, 1, 2, 2, 3)), len(earlier))
        others = random.sample([one for one in earlier if one != first], joins - 1)
        edges[name] = tuple(sorted((first, *others)))
    return edges


def _choices(random: Random, edges: Edges) -> Choices:
    choices: Choices = {}
    for name, successors in dag.reverse(edges).items():
        if not successors or random.random() > 0.4 or not may_choose(edges, (*choices, name)):  # noqa: PLR2004 (a share)
            continue
        options = [one for size in range(len(successors) + 1) for one in combinations(successors, size)]
        choices[name] = tuple(random.sample(options, random.randint(2, min(4, len(options)))))
    return choices


def may_choose(edges: Mapping[str, tuple[str, ...]], choosers: tuple[str, ...]) -> bool:
    """Whether joins and the gate can be told what these stages choose (`topology.rules.choices`)."""
    successors = dag.reverse(edges)
    behind = {name: dag.reach([name], successors) for name in choosers}
    terminals = [name for name in edges if not successors[name] or name in behind]
    for name in choosers:
        joins = (before for join, before in edges.items() if join != name and len(before) > 1 and join in behind[name])
        if any(not behind[name].issuperset(before) for before in joins):
            return False
        if any(other not in behind[name] and name not in behind.get(other, ()) for other in terminals):
            return False
    return True
