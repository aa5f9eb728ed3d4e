"""Random schedules: what goes wrong, to whom, when, and under what circumstances. All of it follows from a seed."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from spillway.agents.core.gate import GATE, HELD_LIMIT
from spillway.agents.core.input_tail import TAIL_RECORDS
from spillway.agents.core.join_rules import Rule
from spillway.agents.core.stage import QUEUE_LIMIT
from spillway.agents.proof.shards.schedule.comebacks import with_comeback
from spillway.agents.proof.shards.schedule.scenario import POINTS, TOPOLOGIES, Fault, Kind, Scenario, Topology
from spillway.checkpoint.modes import MODES, NSPB
from spillway.topology import dag
from spillway.topology.rules.structure import unknown_choices

if TYPE_CHECKING:
    from spillway.checkpoint.modes import Mode


# What surrounds the members: bounds at which reading stops, clocks, replicas, and what goes wrong with these.
#
# Beside what strikes at random, stories in which things go wrong that have to do with one another: a shard whose newest
# versions die, readers of its log that are late, and partitions that move, or processes that come back, just then.

_LOG_STORIES = {
    "": 4,
    "dies unheard": 6,
    "moves unheard": 4,
    "moves": 2,
    "comes back": 4,
    "again": 4,
    "breaks": 2,
    "lost": 4,
}
_REPEATS = 0.7  # share of schedules in which one stage repeats what another must not do again, where there are such
_LONG = 0.05  # share of schedules in which hours pass


def drawn_bounds(random: Random, faults: list[Fault]) -> dict[str, Any]:
    """Draw the bounds, often so small that reading stops; the replicas, and how far clocks are apart."""
    return {
        "queue_limit": random.choice((QUEUE_LIMIT, QUEUE_LIMIT, 1, 2, 4)),
        "tail_records": random.choice((TAIL_RECORDS, TAIL_RECORDS, 4, 10)),
        "held_limit": random.choice((HELD_LIMIT, HELD_LIMIT, 2, 6)),
        "replicas": 2 if any(fault.kind is Kind.MOVE for fault in faults) else random.choice((1, 1, 2)),
        "gap": random.choice((0, 0, 0, 400, 1_500)),
        "skew": random.choice((0.0, 0.0, 0.1, 2.0)),
    }


def stretched(scenario: Scenario, random: Random) -> Scenario:
    """Now and then, have all last so long that what is remembered for a time is forgotten."""
    if any(fault.kind is Kind.CUT for fault in scenario.faults):
        return replace(scenario, gap=0)  # an end that has grown beyond the reader again shows nobody that it was cut
    if random.random() > _LONG:
        return scenario
    times = random.choice((200.0, 400.0))
    faults = (replace(fault, at=fault.at * times, seconds=fault.seconds * times) for fault in scenario.faults)
    return replace(
        scenario,
        stretch=times,
        rate=scenario.rate / times,
        slo=scenario.slo * times,
        lag=scenario.lag * times,
        compactions=scenario.compactions / times,
        commit_every=scenario.commit_every * times,
        write_seconds=scenario.write_seconds * times,
        most_seconds=scenario.most_seconds * times,
        faults=tuple(faults),
    )


def drawn_faults(random: Random, topology: Topology, shards: int) -> list[Fault]:
    pairs = _repeating(topology)
    if pairs and random.random() < _REPEATS:
        return _again_while_slow(random, *random.choice(pairs), random.uniform(0.05, 0.3))
    (story,) = random.choices(list(_LOG_STORIES), list(_LOG_STORIES.values()))
    stage, at = random.choice(topology.states), random.uniform(0.1, 0.6)
    shard = random.randrange(topology.shards.get(stage, shards))
    others = [GATE, *(name for name in topology.edges if name not in topology.states)]
    if story == "dies unheard":
        return _dies(random, stage, shard, at) + _unheard(random, topology, stage, shard, at)
    if story == "comes back":
        return _comes_back(random, topology, random.choice(others), at) + _dies(random, stage, shard, at)
    if story == "moves unheard":
        return _moves_unheard(random, topology, stage, shard, at)
    if story == "again":
        return _again(random, topology, shard, at)
    return _single(random, story, topology, others)


def _single(random: Random, story: str, topology: Topology, others: list[str]) -> list[Fault]:
    if story == "moves":
        many = random.randint(1, 4)
        return [Fault(Kind.MOVE, random.choice(others), at=random.uniform(0.0, 1.0)) for _ in range(many)]
    if story == "lost":
        reader, at = random.choice((GATE, *topology.edges)), random.uniform(0.3, 1.0)
        if random.random() < 0.5:  # noqa: PLR2004 (a share)
            return [Fault(Kind.CUT, reader, at=at)]
        again = [Fault(Kind.CRASH, reader, at=at + random.uniform(0.0, 0.1), seconds=0.1)] * random.randint(0, 2)
        return [Fault(Kind.RETAIN, reader, at=at), *again]
    if story == "breaks":
        kinds = (Kind.ABORT, Kind.UNKNOWN)
        return [Fault(random.choice(kinds), GATE, at=random.uniform(0.0, 1.0)) for _ in range(random.randint(1, 3))]
    return []


def _dies(random: Random, stage: str, shard: int, at: float) -> list[Fault]:
    """Have the newest versions of a shard die, with what rests on them; often it is long until it serves again."""
    found = [
        Fault(Kind.SLOW, stage, "primary", at - random.uniform(0.05, 0.3), seconds=1.0, shard=shard),
        Fault(Kind.CRASH, stage, "primary", at, seconds=random.choice((0.02, 0.3, 1.0)), shard=shard),
    ]
    if random.random() < 0.5:  # noqa: PLR2004 (a share)
        point, back = random.choice(("base.after", "load")), random.uniform(0.3, 1.2)
        found.append(Fault(Kind.CRASH, stage, "", at + 0.001, point, 1, shard, back))
    return found


def _comes_back(random: Random, topology: Topology, stage: str, at: float) -> list[Fault]:
    """Have a process stand still, with messages in hand, until others have its place; who reads them dies meanwhile."""
    begin, seconds = at + random.uniform(-0.3, 0.1), random.choice((0.3, 0.8, 1.5))
    point = "outputs.before" if stage == GATE else random.choice(("", "outputs.before", "ack"))
    moves = random.random() < 0.5  # noqa: PLR2004 (a share)
    found = [Fault(Kind.PAUSE, stage, "", begin, point, random.randint(1, 4), seconds=seconds, moves=moves)]
    for reader in topology.edges:
        if stage in topology.edges[reader] and random.random() < 0.7:  # noqa: PLR2004 (a share)
            role = "primary" if reader in topology.states else ""
            then = begin + random.uniform(0.0, seconds)
            found.append(Fault(Kind.CRASH, reader, role, then, seconds=random.choice((0.02, 0.2))))
    return found


def _again(random: Random, topology: Topology, shard: int, at: float) -> list[Fault]:
    pairs = [(sender, reader) for reader, after in topology.edges.items() for sender in after]
    senders = {sender for sender, _ in pairs}
    pairs += [(name, GATE) for name in topology.edges if name not in senders]
    sender, reader = random.choice([pair for pair in pairs if pair[0] not in topology.states] or pairs)
    roles = ["primary" if one in topology.states else "" for one in (sender, reader)]
    found = []
    for _ in range(random.randint(1, 2)):
        then = at + random.uniform(0.02, 0.4)
        found.append(Fault(Kind.CRASH, sender, roles[0], at, shard=shard, seconds=0.02))
        found.append(Fault(Kind.CRASH, reader, roles[1], then, shard=shard, seconds=random.choice((0.02, 0.2))))
        at = then + random.uniform(0.02, 0.2)
    return found


def _repeating(topology: Topology) -> list[tuple[str, str]]:
    """Give the stages whose repetitions another one gets before a state, with that one: no join is between them."""
    edges, states = topology.edges, topology.states
    plain = [(after[0], name) for name, after in edges.items() if len(after) == 1 and name not in states]
    return [
        (sender, reader)
        for sender, reader in plain
        if sender not in states and any(edges[state] == (reader,) for state in states)
    ]


def _again_while_slow(random: Random, sender: str, reader: str, at: float) -> list[Fault]:
    """Have a stage repeat what it has sent to one that has read on far beyond what it has done, and then dies."""
    found = [Fault(Kind.SLOW, reader, at=0.0, seconds=3.0)] * 2
    for _ in range(2):
        dies = at + random.uniform(0.22, 0.35)
        found.append(Fault(Kind.CRASH, sender, at=at, seconds=0.02))
        found.append(Fault(Kind.CRASH, reader, at=dies, seconds=0.02))
        found += [Fault(Kind.SLOW, reader, at=dies + 0.03, seconds=3.0)] * 2
        at = dies + random.uniform(0.0, 0.15)
    return found


def _moves_unheard(random: Random, topology: Topology, stage: str, shard: int, at: float) -> list[Fault]:
    """Have versions die, and partitions move, before live ones replace them, to a replica that has not heard of it."""
    graph = topology.graph()
    others = [name for name in topology.edges if name not in topology.states]
    readers = [GATE, *(name for name in others if stage in graph.rests_on(name))]
    reader, late = random.choice(readers), random.choice((0, 1))
    found = [
        Fault(Kind.SLOW, stage, "primary", at - random.uniform(0.05, 0.3), seconds=1.0, shard=shard),
        Fault(Kind.CRASH, stage, "primary", at, seconds=0.02, shard=shard),
        Fault(
            Kind.CRASH, stage, "", at + 0.001, random.choice(("base.after", "load")), 1, shard, random.uniform(0.5, 1.2)
        ),
        Fault(Kind.LATE, reader, at=at - 0.05, seconds=1.5, shard=shard, of=stage, replica=late),
    ]
    moves = sorted(random.uniform(0.05, 0.8) for _ in range(random.randint(1, 3)))
    return [*found, *(Fault(Kind.MOVE, reader, at=at + then) for then in moves)]


def _unheard(random: Random, topology: Topology, stage: str, shard: int, at: float) -> list[Fault]:
    """Have it heard late by some, to whom partitions move meanwhile, or who die or stand still themselves."""
    found = []
    for _ in range(random.randint(1, 3)):
        reader, replica = random.choice((GATE, *topology.edges)), random.choice((-1, 0, 1))
        begin, seconds = at + random.uniform(-0.1, 0.1), random.choice((0.1, 0.4, 1.5))
        found.append(Fault(Kind.LATE, reader, at=begin, seconds=seconds, shard=shard, of=stage, replica=replica))
        then = begin + random.uniform(0.0, seconds)
        if reader in topology.states:
            role = random.choice(("primary", "backup"))
            found.append(Fault(Kind.CRASH, reader, role, then, seconds=random.choice((0.02, 0.5)), shard=shard))
        else:
            kind = random.choice((Kind.MOVE, Kind.MOVE, Kind.CRASH, Kind.PAUSE))
            moves = random.random() < 0.5  # noqa: PLR2004 (a share)
            found.append(Fault(kind, reader, at=then, seconds=random.choice((0.1, 0.5, 1.0)), moves=moves))
    return found


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
    edges = random_edges(random, random.choice((2, 3, 3, 4, 4, 4, 5, 6)))
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
        random_choices(random, edges),
        {name: random.randint(1, partitions) for name in states if random.random() < 0.3},  # noqa: PLR2004 (a share)
        tuple(name for name in states if random.random() < 0.3),  # noqa: PLR2004 (a share)
    )


def random_edges(random: Random, count: int) -> Edges:
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


def random_choices(random: Random, edges: Edges) -> Choices:
    choices: Choices = {}
    for name, successors in dag.reverse(edges).items():
        if not successors or random.random() > 0.4 or any(unknown_choices(edges, (*choices, name))):  # noqa: PLR2004 (a share)
            continue
        options = [one for size in range(len(successors) + 1) for one in combinations(successors, size)]
        choices[name] = tuple(random.sample(options, random.randint(2, min(4, len(options)))))
    return choices


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
    comebacks = Random(f"comeback {seed}")  # noqa: S311 (a simulation)
    return stretched(with_comeback(scenario, comebacks), bounds)


def _told(story: str, random: Random, topology: Topology, shards: int, at: float) -> list[Fault]:
    stage = random.choice(topology.states)
    shard = random.randrange(topology.shards.get(stage, shards))
    back = random.choice((0.02, 0.1, 0.5, 1.0))
    if story in ("log is late", "broker is away", "gate", "stateless"):
        return _beside(story, random, topology, at, back, shard)
    found: list[Fault] = []
    if story == "member crashes":
        role = random.choice(("primary", "primary", "backup"))
        found = [_crash(random, stage, role, at, back, shard)]
    elif story == "member pauses":
        found = [_pause(random, stage, random.choice(("primary", "primary", "backup")), at, shard)]
    elif story == "two primaries":
        found = [_crash(random, one, "primary", at + random.uniform(0.0, 0.03), back, shard) for one in topology.states]
    elif story == "bad day":
        found = _bad_day(random, topology, stage, at, back, shard)
    elif story == "fig6":
        first, second = topology.states[0], topology.states[-1]
        slow = random.uniform(0.1, 0.4)
        found = [
            Fault(Kind.SLOW, first, "primary", max(0.0, at - slow), seconds=1.0, shard=shard),
            Fault(Kind.CRASH, first, "primary", at, seconds=back, shard=shard),
            Fault(Kind.CRASH, second, "backup", at + random.uniform(-0.02, 0.02), seconds=back, shard=shard),
        ]
    elif story == "all members":
        found = [
            Fault(Kind.CRASH, stage, role, at + random.uniform(0.0, 0.02), seconds=back, shard=shard)
            for role in ("primary", "backup", "backup")
        ]
    elif story == "switch":
        found = [Fault(Kind.SWITCH, stage, at=at, shard=shard)]
    elif story == "member is slow":
        found = [Fault(Kind.SLOW, stage, "primary", at, seconds=random.uniform(0.2, 0.8), shard=shard)]
    return found


def _bad_day(random: Random, topology: Topology, stage: str, at: float, back: float, shard: int) -> list[Fault]:
    """Tell how versions are lost that others rest on, and these hear of it late: after what is made in their place."""
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


def _beside(story: str, random: Random, topology: Topology, at: float, back: float, shard: int) -> list[Fault]:
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
