"""What surrounds the members: bounds at which reading stops, clocks, replicas, and what goes wrong with these.

Beside what strikes at random, stories in which things go wrong that have to do with one another: a shard whose newest
versions die, readers of its log that are late, and partitions that move, or processes that come back, just then.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agents.core.gate import GATE, HELD_LIMIT
from agents.core.input_tail import TAIL_RECORDS
from agents.core.stage import QUEUE_LIMIT
from agents.sim.faults.schedule.scenario import Fault, Kind

if TYPE_CHECKING:
    from random import Random

    from agents.sim.faults.schedule.scenario import Scenario
    from agents.sim.faults.schedule.topologies import Topology

_STORIES = {
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
    (story,) = random.choices(list(_STORIES), list(_STORIES.values()))
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
