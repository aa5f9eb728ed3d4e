"""Small pipelines, seeded scenarios over them, and the judgement of their runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal
from zlib import crc32

from agents.core.joins import Rule
from agents.sim.faults import Fault, FaultKind, FaultRun, Scenario
from tests.oracle import execution_problems, outcome_problems, values
from topology.routing import Graph
from topology.spec import PipelineSpec, StageSpec

if TYPE_CHECKING:
    from random import Random


@dataclass(frozen=True)
class Shape:
    edges: Mapping[str, tuple[str, ...]]
    rules: Mapping[str, Rule] = field(default_factory=dict)
    sinks: Literal["any", "all"] | None = None
    choices: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)  # chooser -> what it may choose

    def graph(self) -> Graph:
        stages = tuple(
            StageSpec(name=name, model="m:M", after=after, choose="m:choose" if name in self.choices else None)
            for name, after in self.edges.items()
        )
        return Graph(PipelineSpec(name="p", slo=1.0, sinks=self.sinks, stages=stages))

    def choice(self, stage: str, request_id: str) -> tuple[str, ...]:
        options = self.choices[stage]
        return options[crc32(f"{stage} {request_id}".encode()) % len(options)]

    def path(self, request_id: str) -> dict[str, tuple[str, ...]]:
        """The choices made for a request: those of the choosers that it reaches."""
        graph, path, reached = self.graph(), {}, set()
        for stage in graph.order:
            before = graph.predecessors[stage]
            if before and not any(p in reached and stage in path.get(p, graph.successors[p]) for p in before):
                continue
            reached.add(stage)
            if stage in self.choices:
                path[stage] = self.choice(stage, request_id)
        return path


SHAPES = {
    "single": Shape({"a": ()}),
    "chain": Shape({"a": (), "b": "a", "c": "b"}),
    "diamond": Shape({"a": (), "b": "a", "c": "a", "d": ("b", "c")}, {"d": Rule()}),
    "partial": Shape({"a": (), "b": "a", "c": "a", "d": ("b", "c")}, {"d": Rule("all", "partial")}),
    "any": Shape({"a": (), "b": "a", "c": "a", "d": ("b", "c"), "e": "d"}, {"d": Rule("any")}),
    "uneven": Shape({"a": (), "b": "a", "c": ("a", "b"), "d": "c", "e": ("a", "d")}, {"c": Rule(), "e": Rule()}),
    "roots": Shape({"a": (), "b": (), "c": ("a", "b")}, {"c": Rule()}),
    "sinks-any": Shape({"a": (), "b": "a", "c": "a"}, sinks="any"),
    "sinks-all": Shape({"a": (), "b": "a", "c": "a", "d": "c"}, sinks="all"),
    "cascade": Shape({"a": (), "b": "a", "c": "b"}, choices={"a": ((), ("b",))}),
    "branches": Shape(
        {"a": (), "b": "a", "c": "a", "d": ("b", "c"), "e": "d"},
        {"d": Rule()},
        choices={"a": (("b",), ("c",), ("b", "c"), ())},
    ),
    "branches-all": Shape(
        {"a": (), "b": "a", "c": "a", "d": "c"}, sinks="all", choices={"a": (("b",), ("c",), ("b", "c"))}
    ),
}
SHAPES = {
    name: replace(shape, edges={k: (v,) if isinstance(v, str) else v for k, v in shape.edges.items()})
    for name, shape in SHAPES.items()
}


def scenario(shape: Shape, **changes: Any) -> Scenario:
    return Scenario(
        graph=shape.graph(),
        rules=shape.rules,
        sinks=shape.sinks,
        choose={stage: (lambda request_id, stage=stage: shape.choice(stage, request_id)) for stage in shape.choices},
        **changes,
    )


def faults(shape: Shape, random: Random, number: int, within: float = 0.8) -> tuple[Fault, ...]:
    """Crashes, zombies, rebalances and aborts at random moments."""
    made = []
    for _ in range(number):
        stage = random.choice([*shape.edges, "gate"])
        if stage == "gate":
            kind = random.choice((FaultKind.CRASH, FaultKind.CRASH, FaultKind.ZOMBIE, FaultKind.ABORT))
        else:
            kind = random.choice((FaultKind.CRASH, FaultKind.CRASH, FaultKind.ZOMBIE, FaultKind.REBALANCE))
        made.append(
            Fault(
                kind,
                stage,
                replica=0 if stage == "gate" else random.randrange(2),
                at=random.uniform(0.02, within),
                seconds=random.uniform(0.01, 0.5),
                pause=random.uniform(0.01, 1.0),
            )
        )
    return tuple(made)


def problems(shape: Shape, done: FaultRun, *, losses: Mapping[str, set[str]] | set[str] = frozenset()) -> list[str]:
    """Judge a run. `losses`: the reasons with which queries may be lost, of all of them or by id."""
    graph = shape.graph()
    rules = {stage: (rule.mode, rule.on_loss) for stage, rule in shape.rules.items()}

    def right(request_id: str, kind: str, told: Any) -> bool:
        if kind != "prediction":
            allowed = losses.get(request_id, set()) if isinstance(losses, Mapping) else losses
            return told in allowed
        path = shape.path(request_id)
        ends = graph.terminals(path)
        if shape.sinks != "all":
            return any(
                told == {"value": value} for end in ends for value in values(graph, rules, path, end, request_id)
            )
        return set(told) == {f"{end}.value" for end in ends} and all(
            told[f"{end}.value"] in values(graph, rules, path, end, request_id) for end in ends
        )

    found = outcome_problems(done.accepted, done.egress, right)
    found += execution_problems(done.executions, done.tenures)
    return found + [f"{process} did not come to rest" for process in done.stuck]
