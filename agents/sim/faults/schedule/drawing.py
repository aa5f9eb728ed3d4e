"""Random schedules: what goes wrong, to whom, when, and under what circumstances. All of it follows from a seed."""

from __future__ import annotations

from itertools import combinations
from random import Random
from typing import TYPE_CHECKING, Literal, NamedTuple

from agents.core.gate import GATE
from agents.core.joins import Rule
from agents.sim.faults.schedule.environment import drawn_bounds, drawn_faults, stretched
from agents.sim.faults.schedule.scenario import POINTS, Fault, Kind, Scenario
from agents.sim.faults.schedule.topologies import TOPOLOGIES, Topology
from checkpoint.modes import MODES, NSPB
from topology import dag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from checkpoint.modes import Mode


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
    """Whether joins and the gate can be told what these stages choose (`topology.rules.structure`)."""
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


_MEMBER_POINTS = {
    "primary": tuple(point for point in POINTS if point != "apply"),
    "backup": ("lease", "claim.before", "claim.after", "fence.before", "fence.after", "base.before", "apply"),
}
_OTHER_POINTS = ("compute.before", "compute.after", "outputs.before", "ack")
_GATE_POINTS = ("outputs.before", "manifest.before", "manifest.after")
_NAMED = 0.3  # share of schedules whose pipeline is a named one
_NSPB = 0.5  # share of schedules that are of HAMS' own mode, beside those that draw it
_LAST = 0.2  # seconds after the last query in which things still go wrong
# What may go wrong together, and how often.
_STORIES = {
    "member crashes": 30,
    "member pauses": 14,
    "two primaries": 9,
    "fig6": 9,
    "all members": 6,
    "member is slow": 6,
    "log is late": 8,
    "broker is away": 4,
    "gate": 6,
    "stateless": 8,
    "switch": 4,
    "bad day": 45,
}


class Where(NamedTuple):
    """Whom something happens to, when, and how long it takes until he is back."""

    stage: str
    at: float
    back: float
    shard: int


def drawn(seed: int, topology: Topology | None = None, mode: Mode | None = None) -> Scenario:
    """Draw a scenario. `topology`, `mode`: None to draw them too."""
    random = Random(f"schedule {seed}")  # noqa: S311 (a simulation)
    graphs = Random(f"graph {seed}")  # noqa: S311 (a simulation)
    partitions = graphs.choice((2, 2, 3))
    if topology is None:
        named = graphs.random() < _NAMED
        topology = graphs.choice(list(TOPOLOGIES.values())) if named else random_topology(graphs, partitions)
    if mode is None:
        mode = NSPB if random.random() < _NSPB else random.choice(list(MODES.values()))
    shards = random.choice((1, 1, 1, 2))
    queries, rate = random.randint(16, 30), random.choice((30.0, 60.0, 120.0))
    faults: list[Fault] = []
    for _ in range(random.choice((1, 1, 2, 2, 3, 4))):
        (story,) = random.choices(list(_STORIES), list(_STORIES.values()))
        faults += _told(story, random, topology, shards, random.uniform(0.02, queries / rate + _LAST))
    bounds = Random(f"environment {seed}")  # noqa: S311 (a simulation)
    faults += drawn_faults(bounds, topology, shards)
    expired = random.random() < 0.15  # noqa: PLR2004 (a share)
    scenario = Scenario(
        topology=topology,
        mode=mode,
        deterministic=mode.logs,
        shards=shards,
        backups=random.choice((1, 1, 1, 1, 2, 0)),
        partitions=partitions,
        queries=queries,
        rate=rate,
        slo=random.choice((0.15, 0.5)) if expired else 1_000.0,
        policy="expired" if expired else bounds.choice(("naive", "naive", "hbf")),
        poison=random.choice((0.0, 0.0, 0.0, 0.08)),
        repeats=random.choice((0.0, 0.0, 0.15)),
        redeliveries=random.choice((0.0, 0.0, 0.1)),
        reports=random.random() < 0.7,  # noqa: PLR2004 (a share)
        lag=random.choice((0.4, 0.8, 1.5)),
        compactions=random.choice((0.0, 4.0, 30.0)),
        commit_every=random.choice((0.02, 0.1, 0.2)),
        write_seconds=random.choice((0.002, 0.01, 0.06)),
        faults=tuple(faults),
        **drawn_bounds(bounds, faults),
        keys=graphs.choice((1, 5)),
        chance=graphs.choice((0.0, 0.0, 0.2, 0.6)),
        flaky=graphs.choice((0.0, 0.0, 0.0, 0.25)),
    )
    return stretched(scenario, bounds)


def _told(story: str, random: Random, topology: Topology, shards: int, at: float) -> list[Fault]:
    stage = random.choice(topology.states)
    shard = random.randrange(topology.shards.get(stage, shards))
    back = random.choice((0.02, 0.1, 0.5, 1.0))
    if story == "member crashes":
        role = random.choice(("primary", "primary", "backup"))
        return [_crash(random, stage, role, at, back, shard)]
    if story == "member pauses":
        return [_pause(random, stage, random.choice(("primary", "primary", "backup")), at, shard)]
    if story == "two primaries":
        return [_crash(random, one, "primary", at + random.uniform(0.0, 0.03), back, shard) for one in topology.states]
    if story == "bad day":
        return _bad_day(random, topology, Where(stage, at, back, shard))
    if story == "fig6":
        first, second = topology.states[0], topology.states[-1]
        slow = random.uniform(0.1, 0.4)
        return [
            Fault(Kind.SLOW, first, "primary", max(0.0, at - slow), seconds=1.0, shard=shard),
            Fault(Kind.CRASH, first, "primary", at, seconds=back, shard=shard),
            Fault(Kind.CRASH, second, "backup", at + random.uniform(-0.02, 0.02), seconds=back, shard=shard),
        ]
    return _to_one(story, random, topology, Where(stage, at, back, shard))


def _bad_day(random: Random, topology: Topology, where: Where) -> list[Fault]:
    """Tell how versions are lost that others rest on, and these hear of it late: after what is made in their place."""
    stage, at, back, shard = where
    late = random.choice((0.15, 0.4, 0.4, 1.5))
    graph = topology.graph()
    readers = [one for one in (*topology.edges, GATE) if stage in graph.rests_on(None if one == GATE else one)]
    point = random.choice(("", "", "chunks.before", "chunks.after", "outputs.after", "manifest.before"))
    faults = [Fault(Kind.CRASH, stage, "primary", at, point, random.randint(1, 3), shard, back)]
    if random.random() < 0.5:  # noqa: PLR2004 (a share)
        faults.append(Fault(Kind.CRASH, stage, "primary", at + late / 2, "", 1, shard, back))
    faults += [
        Fault(Kind.LATE, reader, at=at + random.uniform(-0.05, 0.05), seconds=late, shard=shard, of=stage)
        for reader in readers
        if random.random() < 0.7  # noqa: PLR2004 (a share)
    ]
    return faults


def _to_one(story: str, random: Random, topology: Topology, where: Where) -> list[Fault]:
    stage, at, back, shard = where
    if story == "all members":
        return [
            Fault(Kind.CRASH, stage, role, at + random.uniform(0.0, 0.02), seconds=back, shard=shard)
            for role in ("primary", "backup", "backup")
        ]
    if story == "switch":
        return [Fault(Kind.SWITCH, stage, at=at, shard=shard)]
    if story == "member is slow":
        return [Fault(Kind.SLOW, stage, "primary", at, seconds=random.uniform(0.2, 0.8), shard=shard)]
    return _beside(story, random, topology, where)


def _beside(story: str, random: Random, topology: Topology, where: Where) -> list[Fault]:
    _, at, back, shard = where
    if story == "log is late":
        reader = random.choice((*topology.edges, GATE))
        of = random.choice(topology.states)
        return [Fault(Kind.LATE, reader, at=at, seconds=random.uniform(0.1, 0.35), shard=shard, of=of)]
    if story == "broker is away":
        return [Fault(Kind.AWAY, at=at, seconds=random.choice((0.2, 1.0, 2.5)))]
    others = [name for name in topology.edges if name not in topology.states]
    stage = GATE if story == "gate" or not others else random.choice(others)
    points = _GATE_POINTS if stage == GATE else _OTHER_POINTS
    if random.random() < 0.3:  # noqa: PLR2004 (a share)
        return [Fault(Kind.PAUSE, stage, at=at, seconds=random.uniform(0.3, 2.0))]
    point = random.choice(("", *points))
    return [Fault(Kind.CRASH, stage, "", at, point, random.randint(1, 4), seconds=back)]


def _crash(random: Random, stage: str, role: str, at: float, back: float, shard: int) -> Fault:
    point = random.choice(("", *_MEMBER_POINTS[role]))
    if point.startswith(("claim", "fence", "base", "load")):
        at = 0.0 if random.random() < 0.3 else at  # noqa: PLR2004 (a share: of the first election, or of a later one)
        role = ""
    return Fault(Kind.CRASH, stage, role, at, point, random.randint(1, 3), shard, back)


def _pause(random: Random, stage: str, role: str, at: float, shard: int) -> Fault:
    seconds = random.choice((0.3, 1.2, 1.6, 2.4))
    point = random.choice(("", *_MEMBER_POINTS[role]))
    reported = random.random() < 0.3  # noqa: PLR2004 (a share)
    return Fault(Kind.PAUSE, stage, role, at, point, random.randint(1, 3), shard, seconds, reported=reported)
