"""A pipeline drawn as text, for terminals, and as a graph in the DOT language of Graphviz."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from topology.layout import Node, layers
from topology.quantities import show_duration
from topology.topics import egress, ingress

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from topology.load import Pipeline
    from topology.spec import StageSpec

_LINE: Final = 36  # characters of a long name that a box shows
_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_STROKES: Final = dict(zip(range(16), "  │││┘┐┤│└┌├─┴┬┼", strict=True)) | {
    _UP: "│",
    _DOWN: "│",
    _LEFT: "─",
    _RIGHT: "─",
}
_LEGEND: Final = "◇ sends a query only to those that it chooses, and ends it there where it chooses none"

_Net = tuple[list[Node], list[Node]]


def text(pipeline: Pipeline) -> str:
    """The graph as lines of text, from the ingress to the egress."""
    rows = layers(*_boxes(pipeline))
    lines: list[str] = []
    for number, layer in enumerate(rows):
        lines += _draw_boxes(layer)
        if number + 1 < len(rows):
            lines += _draw_lines(layer, rows[number + 1])
    if any(pipeline.graph.is_chooser(name) for name in pipeline.graph.order):
        lines += ["", _LEGEND]
    return "\n".join(line.rstrip() for line in lines)


def dot(pipeline: Pipeline) -> str:
    """The graph in DOT; conditional edges are dashed."""
    spec, graph = pipeline.spec, pipeline.graph
    first, last = _quoted(ingress(spec.name)), _quoted(egress(spec.name))
    lines = [
        f"digraph {_quoted(spec.name)} {{",
        "  node [shape=box];",
        f"  {first} [shape=cds];",
        f"  {last} [shape=cds];",
    ]
    for name in graph.order:
        label = "\\n".join(_quoted(line)[1:-1] for line in _described(pipeline, spec.stage(name)))
        lines.append(f'  {_quoted(name)} [label="{label}"];')
    lines += [f"  {first} -> {_quoted(name)};" for name in graph.roots]
    for name in graph.order:
        dashed = " [style=dashed]" if graph.is_chooser(name) else ""
        lines += [f"  {_quoted(name)} -> {_quoted(successor)}{dashed};" for successor in graph.successors[name]]
        if graph.is_chooser(name):
            lines.append(f'  {_quoted(name)} -> {last} [style=dotted, label="none chosen"];')
    lines += [f"  {_quoted(name)} -> {last};" for name in graph.sinks]
    return "\n".join([*lines, "}"])


def _boxes(pipeline: Pipeline) -> tuple[list[Node], dict[str, Sequence[str]]]:
    """All boxes, each after its predecessors, and the predecessors."""
    spec, graph = pipeline.spec, pipeline.graph
    first, last = ingress(spec.name), egress(spec.name)
    boxes = [Node(first, (first,))]
    boxes += [Node(name, tuple(_described(pipeline, spec.stage(name))), graph.is_chooser(name)) for name in graph.order]
    gate = (last,) if len(graph.sinks) == 1 else (last, f"when {spec.sinks} of {len(graph.sinks)} have answered")
    boxes.append(Node(last, gate))
    before: dict[str, Sequence[str]] = {name: graph.predecessors[name] or (first,) for name in graph.order}
    return boxes, {first: (), **before, last: graph.sinks}


def _described(pipeline: Pipeline, stage: StageSpec) -> Iterable[str]:
    yield _short(stage.name)
    if stage.emulated is not None:
        profile = stage.emulated
        line = "a measured table"
        if profile.table is None:
            line = f"{show_duration(profile.alpha or 0)} + {show_duration(profile.beta or 0)} each"
        yield f"emulated: {line}"
    else:
        yield _short(stage.model or "")
    if pipeline.graph.is_join(stage.name):
        count = len(stage.after)
        mode = "all" if stage.join is None else stage.join.mode
        partial = mode == "all" and stage.join is not None and stage.join.on_loss == "partial"
        waits = "all that come" if partial else "all" if mode == "all" else "the first"
        yield f"joins {waits} of {count}"
    if stage.choose is not None:
        yield _short(f"chooses by {stage.choose}")
    upper = f" (max {stage.max_batch})" if stage.batch_size < stage.max_batch else ""
    delay = f", waits {show_duration(stage.batch_delay)}" if stage.batch_delay else ""
    yield f"batch {stage.batch_size}{upper}{delay}"
    yield f"{_count(stage.replicas, 'replica')} x {_count(stage.instances, 'instance')}, {stage.device}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _short(name: str) -> str:
    """A long name without its middle: both ends tell it from others."""
    half = _LINE // 2
    return name if len(name) <= _LINE else f"{name[: half - 1]}…{name[-half:]}"


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _draw_boxes(layer: list[Node]) -> list[str]:
    height = max(len(node.lines) for node in layer) + 2
    canvas = [[" "] * (max(node.left + node.width for node in layer)) for _ in range(height)]
    for node in layer:
        bottom = len(node.lines) + 1
        if node.lines:
            inner = node.width - 2
            rows = [f"┌{'─' * inner}┐", *(f"│ {line:<{inner - 2}} │" for line in node.lines), f"└{'─' * inner}┘"]
            for number, row in enumerate(rows):
                canvas[number][node.left : node.left + node.width] = row
            if node.targets:
                canvas[bottom][node.column] = "◇" if node.chooses else "┬"
        for number in range(bottom + 1 if node.lines else 0, height):
            if node.targets:
                canvas[number][node.column] = "│"
    return ["".join(row) for row in canvas]


def _draw_lines(above: list[Node], below: list[Node]) -> list[str]:
    """The lines between two layers: each net (sources with the same targets) has a row of its own to turn in."""
    nets = _nets(above)
    ends = _ends(above, below)
    turning = [net for net in nets if {node.column for node in net[0]} != {ends[id(node)] for node in net[1]}]
    row_of = {id(net): row for row, net in enumerate(turning)}
    height = len(turning) + 1
    strokes: dict[tuple[int, int], int] = {}
    for net in nets:
        row = row_of.get(id(net), 0)
        if id(net) in row_of:
            _draw_turns(strokes, net, row, ends)
        for node in net[0]:
            _draw_vertical(strokes, node.column, range(row))
        for node in net[1]:
            _draw_vertical(strokes, ends[id(node)], range(row + (id(net) in row_of), height))
    width = max((column for _, column in strokes), default=0) + 1
    canvas = [[_STROKES[strokes.get((row, column), 0)] for column in range(width)] for row in range(height)]
    for node in below:
        if node.lines and node.sources:
            canvas[-1][ends[id(node)]] = "▼"
    return ["".join(row) for row in canvas]


def _draw_turns(strokes: dict[tuple[int, int], int], net: _Net, row: int, ends: dict[int, int]) -> None:
    """The horizontal of a net, from its outermost column to the other, with what goes up and down from it."""
    up, down = {node.column for node in net[0]}, {ends[id(node)] for node in net[1]}
    first, last = min(up | down), max(up | down)
    for column in range(first, last + 1):
        mask = (_LEFT if column > first else 0) | (_RIGHT if column < last else 0)
        mask |= (_UP if column in up else 0) | (_DOWN if column in down else 0)
        known = strokes.get((row, column), 0)
        if mask & (_UP | _DOWN):  # what stands here leads to the same node: the lines meet
            strokes[row, column] = known | mask
        elif not known:  # else a line of another net passes over this one
            strokes[row, column] = mask


def _draw_vertical(strokes: dict[tuple[int, int], int], column: int, rows: range) -> None:
    for row in rows:
        known = strokes.get((row, column), 0)
        meets = known if known & (_UP | _DOWN) else 0
        strokes[row, column] = meets | _UP | _DOWN


def _nets(above: list[Node]) -> list[_Net]:
    nets: dict[tuple[int, ...], _Net] = {}
    for node in above:
        if node.targets:
            key = tuple(sorted(map(id, node.targets)))
            nets.setdefault(key, ([], node.targets))[0].append(node)
    return list(nets.values())


def _ends(above: list[Node], below: list[Node]) -> dict[int, int]:
    """The column in which lines reach each node: beside those of sources that do not lead there."""
    ends = {}
    for node in below:
        foreign = {other.column for other in above if other.targets and node not in other.targets}
        column = node.column
        while column in foreign:
            column += 1
        if not node.lines:
            node.column = column
        ends[id(node)] = column
    return ends
