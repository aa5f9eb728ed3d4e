"""Cases, drawn by a seed."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

from spillway.agents.core.join_rules import PAYLOAD_BYTES
from spillway.agents.proof.pipelines.case import PATIENT, Case, Fault, Kind
from spillway.agents.proof.pipelines.crews import with_crews
from spillway.agents.proof.shards.schedule.drawing import random_choices, random_edges
from spillway.lineage.metric_names import GATE
from spillway.topology import dag

if TYPE_CHECKING:
    from spillway.agents.proof.shards.schedule.drawing import Choices, Edges

_MODULE: Final = "spillway.agents.proof.pipelines.models"
_LONG: Final = 9_000  # characters: outcomes are then made JSON beside the gate's rounds
_RULES: Final = (("all", "drop"), ("all", "partial"), ("all", "partial"), ("any", "drop"))


def drawn(seed: int) -> Case:
    case = _any_case(seed)
    random, crews = Random(f"held {seed}"), Random(f"crews {seed}")  # noqa: S311 (a simulation)
    share = 1.0 if case.loses else random.random()
    if share < 0.06:  # noqa: PLR2004 (a share)
        return _with_a_full_gate(case, random)
    if share < 0.12:  # noqa: PLR2004 (a share)
        return _with_full_outputs(case, random)
    return with_crews(case, crews) if crews.random() < 0.6 else case  # noqa: PLR2004 (a share)


def _any_case(seed: int) -> Case:
    random = Random(f"pipeline {seed}")  # noqa: S311 (a simulation)
    patient = random.random() < 0.7  # noqa: PLR2004 (a share)
    deadline = PATIENT if patient else random.choice((0.1, 0.3, 1.0))
    edges = random_edges(random, random.choice((1, 2, 2, 3, 3, 4, 4, 5, 6)))
    spec = _pipeline(random, edges, deadline)
    names = [*edges, GATE]
    most = spec["partitions"]
    replicas = {name: min(random.choice((1, 1, 2, 3)), most) for name in edges} | {GATE: random.choice((1, 1, 2))}
    for stage in spec["stages"]:
        fronts = replicas[stage["name"]]
        stage["workers"] = {"fronts": fronts, "count": fronts * random.choice((1, 2))}
    chance = random.choice
    durations = {name: chance((0.001, 0.005, 0.02, 0.08)) for name in edges}
    faults = _faults(random, names, replicas)
    shared, rate = [name for name in names if replicas[name] > 1], chance((15.0, 40.0, 200.0))
    if shared and random.random() < 0.35:  # noqa: PLR2004 (a share)
        faults, rate = _moves(random, chance(shared), spec, durations, replicas), chance((20.0, 60.0, 200.0))
    return Case(
        spec=spec,
        replicas=replicas,
        durations=durations,
        deadline=deadline,
        queries=random.randint(8, 30),
        rate=rate,
        repeats=chance((0.0, 0.0, 0.2)),
        poison=chance((0.0, 0.0, 0.1)),
        json=chance((0.0, 0.0, 0.5)),
        payload_bytes=chance((PAYLOAD_BYTES, PAYLOAD_BYTES, 0, 10_000)),
        gaps=chance((0, 0, 1, 3)),
        kills=chance((0.0, 0.002, 0.005, 0.01)),
        breaks=chance((0.0, 0.0, 0.1)),
        slow=chance((0.0, 0.04, 0.15)),
        skew=chance((0.0, 0.0, 0.5)),
        faults=tuple(faults),
    )


def _with_a_full_gate(case: Case, random: Random) -> Case:
    """Draw a gate that holds long outcomes, which become JSON slowly, while partitions come to it from another."""
    case.spec["partitions"] = 4
    before = {name for stage in case.spec["stages"] for name in stage["after"]}
    for stage in case.spec["stages"]:
        if stage["name"] not in before:
            stage["arguments"]["pad"] = _LONG
    at, faults = 0.2, []
    for _ in range(random.randint(3, 6)):
        faults.append(Fault(Kind.LEAVE, at, GATE, random.choice((0, 0, 1))))
        at += random.uniform(0.1, 0.6)
    replicas, held = case.replicas | {GATE: 2}, random.choice((1, 2))
    faults += [fault for fault in case.faults if fault.name != GATE]
    return replace(
        case, json=1.0, replicas=replicas, held_limit=held, executor=0.6, rate=40.0, queries=40, faults=tuple(faults)
    )


def _with_full_outputs(case: Case, random: Random) -> Case:
    """Draw partitions that go and come back while a stage that sends slowly has no room for what was read of them."""
    name, partitions, mover = random.choice(case.spec["stages"])["name"], random.choice((3, 4)), random.choice((0, 1))
    case.spec["partitions"] = partitions
    for stage in case.spec["stages"]:
        if stage["name"] == name:
            stage["workers"] = {"fronts": 2, "count": 2}
            stage["batching"]["max"] = 1
    faults = [fault for fault in case.faults if fault.name not in (name, GATE)]
    faults.append(Fault(Kind.SLOW, 0.05, name, 1 - mover, random.choice((1.6, 4.0))))
    faults.append(Fault(Kind.LATE, 0.0, name, mover, 8.0))
    at = random.uniform(0.1, 0.4)
    for _ in range(random.randint(5, 9)):
        faults.append(Fault(Kind.LEAVE, at, name, mover))
        at += random.uniform(0.2, 0.8)
    return replace(
        case,
        in_flight=random.choice((1, 2)),
        replicas=case.replicas | {name: 2},
        durations=case.durations | {name: random.choice((0.005, 0.02, 0.08))},
        rate=100.0,
        queries=30,
        kills=0.0,
        faults=tuple(faults),
    )


# The pipeline --------------------------------------------------------------------------------------------------


def _pipeline(random: Random, edges: Edges, deadline: float) -> dict[str, Any]:
    successors = dag.reverse(edges)
    choices = random_choices(random, edges)
    several = sum(not behind for behind in successors.values()) > 1
    spec: dict[str, Any] = {
        "name": "p",
        "slo": f"{round(1000 * deadline)}ms",
        "partitions": random.choice((1, 2, 3, 4)),
        "policy": random.choice(("naive", "pard")),
        "stages": [_stage(random, name, edges, successors[name], choices) for name in edges],
    }
    if several:
        spec["sinks"] = random.choice(("any", "all"))
    return spec


def _stage(random: Random, name: str, edges: Edges, behind: tuple[str, ...], choices: Choices) -> dict[str, Any]:
    splits = len(behind) > 1 and random.random() < 0.3  # noqa: PLR2004 (a share)
    options = choices.get(name) or ((behind,) if splits else ())
    pad = random.choice((0, 0, 0, _LONG)) if not behind else 0  # what is long becomes JSON beside the gate's rounds
    arguments = {"stage": name, "options": options, "raises": random.choice((0, 0, 0, 7)), "pad": pad}
    stage: dict[str, Any] = {"name": name, "model": f"{_MODULE}:Hashes", "arguments": arguments}
    stage["after"] = list(edges[name])
    if len(edges[name]) > 1:
        mode, on_loss = random.choice(_RULES)
        stage["join"] = {"mode": mode, "on_loss": on_loss}
    if name in choices:
        stage["choose"] = f"{_MODULE}:choose"
    if splits:
        stage["split"] = f"{_MODULE}:split"
    size = random.choice((1, 2, 4, 64))
    stage["batching"] = {"limit": random.choice(("fixed", "aimd")), "max": size, "delay": random.choice(("0ms", "2ms"))}
    if random.random() < 0.3:  # noqa: PLR2004 (a share)
        stage["queue"] = random.choice((size, size + 1))
    if random.random() < 0.3:  # noqa: PLR2004 (a share)
        stage["cache"] = {"bytes": random.choice(("1kB", "1MB"))}
    if random.random() < 0.25:  # noqa: PLR2004 (a share)
        stage["default"] = {"v": f"default-{name}", **({"to": list(options[0])} if options else {})}
    return stage


# What goes wrong -----------------------------------------------------------------------------------------------


def _faults(random: Random, names: list[str], replicas: dict[str, int]) -> list[Fault]:
    kinds = random.choices(
        (Kind.KILL, Kind.STOP, Kind.REPLACE, Kind.LEAVE, Kind.AWAY, Kind.LATE, Kind.SLOW),
        (6, 4, 3, 4, 1, 2, 1),
        k=random.choice((0, 1, 2, 3, 5)),
    )
    faults = []
    for kind in kinds:
        name = random.choice(names)
        seconds = random.choice((0.05, 0.3, 0.8, 1.6))
        faults.append(Fault(kind, random.uniform(0.0, 1.5), name, random.randrange(replicas[name]), seconds))
    if random.random() < 0.06:  # noqa: PLR2004 (a share)
        name, at = random.choice(names), random.uniform(0.5, 1.5)
        faults.append(Fault(Kind.RETAIN, at, name))
        faults += [Fault(Kind.KILL, at + random.uniform(0.0, 0.1), name, replica) for replica in range(replicas[name])]
    return faults


def _moves(
    random: Random, name: str, spec: dict[str, Any], durations: dict[str, float], replicas: dict[str, int]
) -> list[Fault]:
    """Draw partitions that come and go again and again while their stage has much to do, and little room."""
    for stage in spec["stages"]:
        if stage["name"] == name:
            stage["batching"]["max"] = stage["queue"] = random.choice((1, 2))
            stage["workers"]["count"] = stage["workers"]["fronts"]
            durations[name] = random.choice((0.02, 0.1, 0.4, 1.2, 1.2))
    spec["partitions"] = max(spec["partitions"], 3)
    at, faults, mover = random.uniform(0.05, 0.4), [], random.randrange(replicas[name])
    if random.random() < 0.5:  # noqa: PLR2004 (a share: partitions come back from it as they went)
        faults.append(Fault(Kind.LATE, 0.0, name, mover, 6.0))
    for _ in range(random.randint(3, 7)):
        kind = random.choice((Kind.LEAVE, Kind.LEAVE, Kind.LEAVE, Kind.STOP, Kind.KILL))
        faults.append(Fault(kind, at, name, mover, random.choice((0.3, 0.7, 1.2))))
        at += random.uniform(0.03, 0.4) + durations.get(name, 0.0) * random.random()
    return faults
