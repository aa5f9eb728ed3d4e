"""The characters of a drawn graph: boxes, and the lines between two layers of them.

Sources with the same targets share a *net*: one horizontal, in a row of its own. Nets end at columns of their own and
so never touch; where two cross, the vertical line is drawn through and the horizontal goes on behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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
