"""Where the boxes of a drawn graph lie: layers from top to bottom, and in each layer an order and columns.

The layered way of drawing: a box lies one layer below the lowest of its predecessors, an edge that passes layers gets a
waypoint in each, and boxes are ordered by the mean place of their neighbours, so that few lines cross.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
