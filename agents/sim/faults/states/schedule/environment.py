"""What surrounds the members: bounds at which reading stops, clocks, replicas, and what goes wrong with these.

Beside what strikes at random, stories in which things go wrong that have to do with one another: a shard whose newest
versions die, readers of its log that are late, and partitions that move, or processes that come back, just then.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agents.core.gate import GATE
from agents.core.gate_gauges import HELD_LIMIT
from agents.core.input_tail import TAIL_RECORDS
from agents.core.stage import QUEUE_LIMIT
from agents.sim.faults.states.schedule.scenario import Fault, Kind

if TYPE_CHECKING:
    from random import Random

    from agents.sim.faults.states.schedule.scenario import Scenario
    from agents.sim.faults.states.schedule.topologies import Topology

_STORIES = {"": 6, "dies unheard": 6, "moves": 2, "comes back": 4, "again": 4, "breaks": 2, "lost": 2}
_LONG = 0.05  # share of schedules in which hours pass


def drawn_bounds(random: Random) -> dict[str, Any]:
    """Draw the bounds, often so small that reading stops; the replicas, and how far clocks are apart."""
    return {
        "queue_limit": random.choice((QUEUE_LIMIT, QUEUE_LIMIT, 1, 2, 4)),
        "tail_records": random.choice((TAIL_RECORDS, TAIL_RECORDS, 4, 10)),
        "held_limit": random.choice((HELD_LIMIT, HELD_LIMIT, 2, 6)),
        "replicas": random.choice((1, 1, 2)),
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
    """Draw what goes wrong around the members."""
    (story,) = random.choices(list(_STORIES), list(_STORIES.values()))
    stage, at = random.choice(topology.states), random.uniform(0.1, 0.6)
    shard = random.randrange(topology.shards.get(stage, shards))
    others = [GATE, *(name for name in topology.edges if name not in topology.states)]
    if story == "dies unheard":
        return _dies(random, stage, shard, at) + _unheard(random, topology, stage, shard, at)
    if story == "comes back":
        return _comes_back(random, topology, random.choice(others), at) + _dies(random, stage, shard, at)
    if story == "again":
        return _again(random, topology, shard, at)
    return _single(random, story, topology, others)


def _single(random: Random, story: str, topology: Topology, others: list[str]) -> list[Fault]:
    """Draw what has to do with nothing else; nothing, mostly."""
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
    """Have a stage repeat what it has sent, and who reads it begin anew a moment later."""
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
