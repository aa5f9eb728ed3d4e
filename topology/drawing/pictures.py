"""A pipeline drawn as text, for terminals, and as a graph in the DOT language of Graphviz."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from spillway.topology.quantities import show_duration
from spillway.topology.sections import ADAPTIVE
from spillway.topology.topics import egress, ingress

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from spillway.topology.load import Pipeline
    from spillway.topology.spec import StageSpec


# The characters of a drawn graph: boxes, and the lines between two layers of them.
#
# Sources with the same targets share a *net*: one horizontal, in a row of its own. Nets end at columns of their own
# and so never touch; where two cross, the vertical line is drawn through and the horizontal goes on behind it.

# Where the boxes of a drawn graph lie: layers from top to bottom, and in each layer an order and columns.
#
# The layered way of drawing: a box lies one layer below the lowest of its predecessors, an edge that passes layers
# gets a waypoint in each, and boxes are ordered by the mean place of their neighbours, so that few lines cross.

_GAP = 3  # columns between boxes; odd (see `Node.width`)
_WAYPOINT = 3  # columns that a line passing a layer takes
_ARROW = 5  # columns that a line into a box may take
_SWEEPS = 6


@dataclass(slots=True)
class Node:
    """A box with its lines of text, or, without a text, a waypoint of an edge."""

    name: str
    lines: tuple[str, ...] = ()
    chooses: bool = False
    left: int = 0
    column: int = 0  # where its lines begin and end
    targets: list[Node] = field(default_factory=list, repr=False)
    sources: list[Node] = field(default_factory=list, repr=False)

    @property
    def width(self) -> int:
        """Columns that it takes, with its border; odd, as are all layers then, so that middles lie below middles."""
        return max(max(map(len, self.lines)) + 4, _ARROW * len(self.sources)) | 1 if self.lines else _WAYPOINT


def layers(boxes: Sequence[Node], predecessors: Mapping[str, Sequence[str]]) -> list[list[Node]]:
    """Place the boxes, given each after its predecessors; returns the layers with their waypoints."""
    by_name = {box.name: box for box in boxes}
    rank: dict[str, int] = {}
    placed: list[list[Node]] = []
    for box in boxes:
        level = rank[box.name] = 1 + max((rank[name] for name in predecessors[box.name]), default=-1)
        if level == len(placed):
            placed.append([])
        placed[level].append(box)
    for box in boxes:
        for name in predecessors[box.name]:
            above = by_name[name]
            for level in range(rank[name] + 1, rank[box.name]):
                waypoint = Node(f"{name} to {box.name}", chooses=above.chooses)
                _connect(above, waypoint)
                placed[level].append(waypoint)
                above = waypoint
            _connect(above, box)
    _order(placed)
    _spread(placed)
    return placed


def _connect(source: Node, target: Node) -> None:
    source.targets.append(target)
    target.sources.append(source)


def _order(placed: list[list[Node]]) -> None:
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for layer in placed[1:] if down else placed[-2::-1]:
            place = {id(node): at for other in placed for at, node in enumerate(other)}
            means = {}
            for node in layer:
                near = node.sources if down else node.targets
                means[id(node)] = sum(place[id(each)] for each in near) / len(near) if near else place[id(node)]
            layer.sort(key=lambda node: means[id(node)])


def _spread(placed: list[list[Node]]) -> None:
    widths = [sum(node.width for node in layer) + _GAP * (len(layer) - 1) for layer in placed]
    for layer, width in zip(placed, widths, strict=True):
        left = (max(widths) - width) // 2
        for node in layer:
            node.left = left
            node.column = left + node.width // 2
            left += node.width + _GAP


_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_STROKES: Final = "  │││┘┐┤│└┌├─┴┬┼"
_APART: Final = 4  # columns between the arrows into one box


@dataclass(slots=True)
class _Net:
    sources: list[Node]
    targets: list[Node]
    ends: list[int]  # the column in which it reaches each target

    @property
    def starts(self) -> set[int]:
        return {node.column for node in self.sources}

    @property
    def turns(self) -> bool:
        return len(self.starts | set(self.ends)) > 1


def draw_boxes(layer: list[Node]) -> list[str]:
    height = max(len(node.lines) for node in layer) + 2
    canvas = [[" "] * max(node.left + node.width for node in layer) for _ in range(height)]
    for node in layer:
        rows: list[str] = []
        if node.lines:
            inner = node.width - 2
            rows = [f"┌{'─' * inner}┐", *(f"│ {line:<{inner - 2}} │" for line in node.lines), f"└{'─' * inner}┘"]
        for number, row in enumerate(rows):
            canvas[number][node.left : node.left + node.width] = row
        if node.targets:
            if rows:
                canvas[len(rows) - 1][node.column] = "◇" if node.chooses else "┬"
            for number in range(len(rows), height):
                canvas[number][node.column] = "│"
    return ["".join(row) for row in canvas]


def draw_lines(above: list[Node], below: list[Node]) -> list[str]:
    nets = _nets(above)
    _find_ends(nets, above, below)
    strokes: dict[tuple[int, int], int] = {}
    height = sum(net.turns for net in nets) + 1
    row = 0
    for net in nets:
        if net.turns:
            _draw_horizontal(strokes, net, row)
        for column in net.starts:
            _draw_vertical(strokes, column, range(row if net.turns else height))
        for column in net.ends:
            _draw_vertical(strokes, column, range(row + 1 if net.turns else 0, height))
        row += net.turns
    width = max(column for _, column in strokes) + 1
    canvas = [[_STROKES[strokes.get((row, column), 0)] for column in range(width)] for row in range(height)]
    for net in nets:
        for node, column in zip(net.targets, net.ends, strict=True):
            if node.lines:
                canvas[-1][column] = "▼"
    return ["".join(row) for row in canvas]


def _nets(above: list[Node]) -> list[_Net]:
    nets: dict[tuple[int, ...], _Net] = {}
    for node in above:
        if node.targets:
            key = tuple(sorted(map(id, node.targets)))
            nets.setdefault(key, _Net([], node.targets, [])).sources.append(node)
    return list(nets.values())


def _find_ends(nets: list[_Net], above: list[Node], below: list[Node]) -> None:
    """Give each net a column of its own into each of its targets, where no line of another net comes down."""
    starts = {node.column for node in above if node.targets}
    taken: set[int] = set()
    ends: dict[tuple[int, int], int] = {}
    for node in below:
        entering = [net for net in nets if node in net.targets]
        for number, net in enumerate(entering):
            column = node.column + _APART * number - _APART * (len(entering) - 1) // 2
            while column in taken or (column in starts and column not in net.starts):
                column += 1
            taken.add(column)
            ends[id(net), id(node)] = column
            if not node.lines:
                node.column = column
    for net in nets:
        net.ends = [ends[id(net), id(node)] for node in net.targets]


def _draw_horizontal(strokes: dict[tuple[int, int], int], net: _Net, row: int) -> None:
    columns = net.starts | set(net.ends)
    first, last = min(columns), max(columns)
    for column in range(first, last + 1):
        mask = (_LEFT if column > first else 0) | (_RIGHT if column < last else 0)
        mask |= (_UP if column in net.starts else 0) | (_DOWN if column in net.ends else 0)
        if column in columns or (row, column) not in strokes:
            strokes[row, column] = mask


def _draw_vertical(strokes: dict[tuple[int, int], int], column: int, rows: range) -> None:
    for row in rows:
        strokes[row, column] = _UP | _DOWN


_LINE: Final = 36  # characters of a long name that a box shows
_LEGEND: Final = "◇ sends a query only to the stages that it chooses; if it chooses none, the query ends there"


def text(pipeline: Pipeline) -> str:
    rows = layers(*_boxes(pipeline))
    lines: list[str] = []
    for number, layer in enumerate(rows):
        lines += draw_boxes(layer)
        if number + 1 < len(rows):
            lines += draw_lines(layer, rows[number + 1])
    if any(pipeline.graph.is_chooser(name) for name in pipeline.graph.order):
        lines += ["", _LEGEND]
    return "\n".join(line.rstrip() for line in lines)


def dot(pipeline: Pipeline) -> str:
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
    spec, graph = pipeline.spec, pipeline.graph
    first, last = ingress(spec.name), egress(spec.name)
    boxes = [Node(first, (first,))]
    boxes += [Node(name, tuple(_described(pipeline, spec.stage(name))), graph.is_chooser(name)) for name in graph.order]
    gate: tuple[str, ...] = (last,)
    if len(graph.sinks) > 1:
        ways = {
            "all": f"when all {len(graph.sinks)} have answered",
            "any": f"when the first of {len(graph.sinks)} has answered",
        }
        gate = (last, ways[spec.sinks or "any"])
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
    elif stage.ensemble is not None:
        yield _short(f"{stage.ensemble.selection.get('name')} of {', '.join(stage.ensemble.members)}")
    elif stage.variants is not None:
        section = stage.variants
        which = f"the registered variants of {section.app}" if section.registered else ", ".join(section.of)
        yield _short(f"one of {which}")
    else:
        yield _short(stage.model or "")
    if pipeline.graph.is_join(stage.name):
        count = len(stage.after)
        mode = "all" if stage.join is None else stage.join.mode
        partial = mode == "all" and stage.join is not None and stage.join.on_loss == "partial"
        waits = "what comes" if partial else "all" if mode == "all" else "the first"
        yield f"joins {waits} of {count}"
    if stage.choose is not None:
        yield _short(f"chooses by {stage.choose}")
    batching, workers, state = stage.batching, stage.workers, stage.state
    upper = f" (max {batching.max})" if batching.most < batching.max else ""
    delay = f", waits {show_duration(batching.delay)}" if batching.delay else ""
    size = f"by {batching.limit}, max {batching.max}" if batching.limit in ADAPTIVE else f"{batching.most}{upper}"
    yield f"batch {size}{delay}"
    if state is not None:
        yield f"{state.kind} state, {state.replication}"
        yield f"{_count(state.shards, 'shard')} x {_count(state.members, 'member')}, {workers.device}"
        return
    standby = f" + {_count(workers.standby, 'standby')}" if workers.standby else ""
    where = "" if workers.where == "thread" else f" ({workers.where})"
    fronts = f" in {workers.fronts} fronts" if workers.fronts > 1 else ""
    total = workers.total
    if stage.ensemble is not None:
        total, where = sum(stage.member(name).workers.total for name in stage.ensemble.members), " (process)"
    elif stage.variants is not None:
        total = sum(stage.variant(name).workers.total for name in stage.variants.of) or 1
        where = " (process)"
    yield f"{_count(total, 'worker')}{where}{fronts}{standby}, {workers.device}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _short(name: str) -> str:
    half = _LINE // 2
    return name if len(name) <= _LINE else f"{name[: half - 1]}…{name[-half:]}"


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)
