"""Small pipelines."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from spillway.agents.core.join_rules import Rule
from spillway.topology.routing import Graph
from spillway.topology.spec import PipelineSpec, StageSpec


@dataclass(frozen=True)
class Shape:
    edges: Mapping[str, tuple[str, ...]]
    rules: Mapping[str, Rule] = field(default_factory=dict)
    sinks: Literal["any", "all"] | None = None
    choices: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)  # chooser -> what it may choose

    def graph(self):
        stages = tuple(
            StageSpec(name=name, model="m:M", after=after, choose="m:choose" if name in self.choices else None)
            for name, after in self.edges.items()
        )
        return Graph(PipelineSpec(name="p", slo=1.0, sinks=self.sinks, stages=stages))


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
