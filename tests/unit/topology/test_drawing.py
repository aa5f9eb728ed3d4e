"""Pipelines drawn as text and as DOT: what they look like, and that every line leads where an edge does."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.topology.drawing.pictures import dot, text
from spillway.topology.load import load, parse
from spillway.topology.routing import Graph
from spillway.topology.spec import PipelineSpec, StageSpec

DRAWINGS = Path(__file__).parent / "drawings"


@pytest.mark.parametrize("name", ["chain", "diamond", "branch", "tangle", "states"])
def test_what_it_looks_like(name):
    assert text(load(DRAWINGS / f"{name}.yaml")) + "\n" == (DRAWINGS / f"{name}.txt").read_text()


def test_dot():
    assert dot(load(DRAWINGS / "branch.yaml")) + "\n" == (DRAWINGS / "branch.dot").read_text()


def test_names_cannot_break_out_of_dot():
    pipeline = parse("{name: p, slo: 1, stages: [{name: a, model: 'm:M', workers: {device: cpu}}]}")
    evil = pipeline.spec.model_copy(update={"name": 'p" [label="x'})
    drawn = dot(SimpleNamespace(spec=evil, graph=pipeline.graph))
    assert drawn.startswith('digraph "p\\" [label=\\"x" {')


def random_pipeline(chance):
    stages = []
    for number in range(chance.randint(1, 9)):
        before = sorted(chance.sample(range(number), min(number, chance.choice((0, 1, 1, 1, 2, 3)))))
        choose = "m:f" if chance.random() < 0.3 else None
        stages.append(StageSpec(name=f"s{number}", model="m:M", after=tuple(f"s{n}" for n in before), choose=choose))
    return PipelineSpec(name="p", slo=1.0, sinks="all", stages=tuple(stages))


@given(st.randoms(use_true_random=False))
def test_every_line_leads_where_an_edge_does(chance):
    spec = random_pipeline(chance)
    graph = Graph(spec)
    drawn = text(SimpleNamespace(spec=spec, graph=graph))
    edges = {(name, other) for name in graph.order for other in graph.successors[name]}
    edges |= {("p.ingress", name) for name in graph.roots} | {(name, "p.egress") for name in graph.sinks}
    assert traced(drawn, ["p.ingress", *graph.order]) == edges


def test_two_stages_that_both_lead_to_the_two_below():
    pipeline = parse(
        "{name: p, slo: 1, sinks: all, stages: [{name: a, model: 'm:M'}, {name: b, model: 'm:M'},"
        "{name: c, model: 'm:M', after: [a, b]}, {name: d, model: 'm:M', after: [a, b]}]}"
    )
    assert {("a", "c"), ("a", "d"), ("b", "c"), ("b", "d")} <= traced(text(pipeline), ["a", "b"])


STARTS = "┬◇"
# What a line does that comes to a character: from above, and along a row. Lines never lead up again.
DOWN = {"│": "d", "└": "r", "┘": "l", "┴": "lr", "├": "dr", "┤": "dl", "┼": "dlr"}
RIGHT = {"─": "r", "│": "r", "┐": "d", "┬": "dr", "┴": "r", "┤": "d", "┼": "dr", "┘": ""}
LEFT = {"─": "l", "│": "l", "┌": "d", "┬": "dl", "┴": "l", "├": "d", "┼": "dl", "└": ""}


def traced(drawn: str, names: list[str]) -> set[tuple[str, str]]:
    """Which boxes the lines of a drawing connect, as a reader follows them with a finger from each of `names`."""
    rows = drawn.splitlines()

    def at(row: int, column: int) -> str:
        return rows[row][column] if row < len(rows) and column < len(rows[row]) else " "

    def name(row: int, column: int) -> str:
        left = rows[row].rindex("│ ", 0, column) + 2
        return rows[row][left:].split()[0]

    def follow(row: int, column: int, way: str) -> set[str]:
        character = at(row, column)
        if way == "d" and character == "▼":
            return {name(row + 2, column)}
        found = set()
        for on in {"d": DOWN, "r": RIGHT, "l": LEFT}[way][character]:
            step = {"d": (row + 1, column), "r": (row, column + 1), "l": (row, column - 1)}[on]
            found |= follow(*step, on)
        return found

    edges = set()
    for own in names:
        row = next(number for number, line in enumerate(rows) if f"│ {own} " in line)
        left = rows[row].index(f"│ {own} ")
        bottom = next(number for number in range(row, len(rows)) if at(number, left) == "└")
        right = rows[bottom].index("┘", left)
        (port,) = (column for column in range(left, right) if at(bottom, column) in STARTS)
        edges |= {(own, end) for end in follow(bottom + 1, port, "d")}
    return edges
