"""The characters of a drawn graph: boxes, and the lines between two layers of them.

Sources with the same targets share a *net*: one horizontal, in a row of its own. Nets end at columns of their own and
so never touch; where two cross, the vertical line is drawn through and the horizontal goes on behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from topology.drawing.layout import Node

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
