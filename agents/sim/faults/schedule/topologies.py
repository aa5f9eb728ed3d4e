"""The pipelines that are proved: stateful stages in every position to one another that the rules speak of.

| name | what it is for |
|---|---|
| chain | two adjacent stateful stages, the first at the ingress: both primaries may die at once |
| diamond | stateful branches: a join hears a dead part from one side and a live one from the other |
| joined | a stateful stage that joins: its versions rest on several parts, and on partners that come late |
| conditional | a stateful stage chooses the way by its state: a request taken again may go another one |
| fig6 | HAMS, Fig. 6: stateful, stateless, stateful; the first one's state is late, the second one's backup dies |

The stage `name` has a state where `states` has it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from agents.core.joins import Rule
from topology.routing import Graph
from topology.sections import StateSpec
from topology.spec import PipelineSpec, StageSpec

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Topology:
    """Edges as `stage -> what it comes after`."""

    name: str
    edges: Mapping[str, tuple[str, ...]]
    states: tuple[str, ...]
    rules: Mapping[str, Rule] = field(default_factory=dict)
    sinks: Literal["any", "all"] | None = None
    choices: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)  # chooser -> its options
    shards: Mapping[str, int] = field(default_factory=dict)  # of stages that have another number than the scenario's
    keyed: tuple[str, ...] = ()  # of `states`, those with a state for each key

    def graph(self) -> Graph:
        stages = tuple(
            StageSpec(
                name=name,
                model="m:M",
                after=after,
                choose="m:choose" if name in self.choices else None,
                state=StateSpec(kind="keyed" if name in self.keyed else "shared") if name in self.states else None,
            )
            for name, after in self.edges.items()
        )
        return Graph(PipelineSpec(name="p", slo=1.0, sinks=self.sinks, stages=stages))


TOPOLOGIES: Final = {
    topology.name: topology
    for topology in (
        Topology("chain", {"a": (), "b": ("a",), "c": ("b",)}, ("a", "b")),
        Topology(
            "diamond",
            {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")},
            ("b", "c"),
            {"d": Rule()},
        ),
        Topology(
            "joined",
            {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")},
            ("b", "d"),
            {"d": Rule()},
        ),
        Topology(
            "conditional",
            {"a": (), "b": ("a",), "c": ("a",)},
            ("a", "b"),
            sinks="all",
            choices={"a": (("b",), ("c",), ("b", "c"), ())},
        ),
        Topology("fig6", {"a": (), "x": ("a",), "b": ("x",)}, ("a", "b")),
    )
}
